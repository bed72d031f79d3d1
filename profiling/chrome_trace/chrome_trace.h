#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "profiling/chrome_trace/trace_events.h"
#include "profiling/json/json_reader.h"
#include "profiling/summary/summary.h"

struct gzFile_s;

namespace minfer {

struct TraceCounts {
  int64_t steps = 0;
  int64_t kernels = 0;       ///< and copies and fills
  int64_t without_step = 0;  ///< kernels and copies of steps without a line; not in the trace
};

/// Writes a profile as a trace in Chrome's JSON format, which Perfetto, chrome://tracing and Holistic Trace Analysis read. Throws
/// Error, before it writes anything, if the filter leaves no step. A filter by request leaves only that request's track.
/// See README.md for the tracks.
TraceCounts write_chrome_trace(const ProfileFile& file, const StepFilter& filter,
                               const TraceEvents::Write& write);

/// Owns a file opened for writing. The file is compressed with gzip if its name ends in ".gz". One thread at a time.
class TraceOutput {
 public:
  /// Creates or empties the file. Throws FileError if it cannot be opened.
  explicit TraceOutput(const std::filesystem::path& path);
  ~TraceOutput();  ///< closes the file; only close() reports errors
  TraceOutput(const TraceOutput&) = delete;
  TraceOutput& operator=(const TraceOutput&) = delete;

  /// Throws FileError, e.g. when the disk is full.
  void write(std::string_view bytes);
  /// Writes the bytes still held back. Throws FileError. Do not write afterwards.
  void close();

 private:
  std::string path_;
  gzFile_s* file_ = nullptr;
};

}  // namespace minfer
