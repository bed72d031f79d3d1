#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace minfer {

/// Owns a read-only mapping of a whole file. Any thread may read its bytes, and reads never end the process. A page beyond the end of a
/// file that shrank, or that a failing device cannot deliver, raises SIGBUS, which ends a process; here it reads as zeros instead. The
/// reader of the bytes calls check_intact() afterwards, which reports that.
///
/// The first mapping installs a handler of SIGBUS for the process. A SIGBUS outside all mappings goes to the handler that was there
/// before, or to the default action.
class MappedFile {
 public:
  /// Throws FileError if the file is missing, unreadable, empty or not a regular file; Error beyond kMaxFiles mappings.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

  /// Throws FileError if the file became shorter, or if a part of it could not be read. Costs a system call.
  void check_intact() const;

  static constexpr size_t kMaxFiles = 4096;

 private:
  MappedFile(const std::filesystem::path& path, int file) : path_(path), file_(file) {}

  std::filesystem::path path_;
  int file_;
  std::span<const std::byte> bytes_;  // empty: not mapped yet
  size_t slot_ = kMaxFiles;           // in the table of ranges that the handler searches; kMaxFiles: none
};

}  // namespace minfer
