#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

namespace minfer {

/// Owns a file, pipe or device opened for writing. Another thread can end a write(), however slow the other end is.
class OutputFile {
 public:
  /// Creates or empties the file. Throws FileError if it cannot be opened.
  explicit OutputFile(const std::filesystem::path& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Writes all of `bytes`; returns the reason for a failure. After a stop request it waits for a slow reader
  /// for at most `timeout`. The calling thread must block SIGPIPE, or a closed pipe ends the process.
  std::optional<std::string> write(std::string_view bytes, const std::stop_token& stop,
                                   std::chrono::milliseconds timeout);

 private:
  std::string path_;
  int fd_;
};

}  // namespace minfer
