#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

namespace minfer {

/// Owns a file, pipe or device opened for writing. Its write() can be ended from outside, however slow the other end is.
class OutputFile {
 public:
  /// Creates or empties the file. Throws FileError if it cannot be opened.
  explicit OutputFile(const std::filesystem::path& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Writes all of `bytes`; returns the reason if it could not. Waits for a slow reader until `timeout` after
  /// a stop was requested. The calling thread has to block SIGPIPE, or a closed pipe ends the process.
  std::optional<std::string> write(std::string_view bytes, const std::stop_token& stop,
                                   std::chrono::milliseconds timeout);

 private:
  std::string path_;
  int fd_;
};

}  // namespace minfer
