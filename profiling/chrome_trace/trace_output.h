#pragma once

#include <filesystem>
#include <string>
#include <string_view>

struct gzFile_s;

namespace minfer {

/// Owns a file opened for writing: compressed with gzip where its name ends in ".gz", as it is otherwise. One thread at a time.
class TraceOutput {
 public:
  /// Creates or empties the file. Throws FileError if it cannot be opened.
  explicit TraceOutput(const std::filesystem::path& path);
  ~TraceOutput();  ///< closes it; what went wrong then is told by close() alone
  TraceOutput(const TraceOutput&) = delete;
  TraceOutput& operator=(const TraceOutput&) = delete;

  /// Throws FileError, e.g. when the disk is full.
  void write(std::string_view bytes);
  /// Writes what is still held back. Throws FileError. Nothing may be written afterwards.
  void close();

 private:
  std::string path_;
  gzFile_s* file_ = nullptr;
};

}  // namespace minfer
