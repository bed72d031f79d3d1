#pragma once

#include <filesystem>
#include <string>
#include <string_view>

struct gzFile_s;

namespace minfer {

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
