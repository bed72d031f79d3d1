#include "models/gguf/mapped_file.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/error.h"

namespace minfer {
namespace {

[[noreturn]] void fail_system(const std::filesystem::path& path, const char* action) {
  fail<FileError>("{}: cannot {}: {}", path.string(), action, std::strerror(errno));
}

struct stat status_of(int file, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(file, &status) != 0) fail_system(path, "read the file's size");
  return status;
}

}  // namespace

MappedFile::Descriptor::Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}

MappedFile::Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

void MappedFile::Unmap::operator()(const std::byte* address) const {
  ::munmap(const_cast<std::byte*>(address), bytes);
}

MappedFile::Descriptor MappedFile::open(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a named pipe without a writer would wait for ever.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.number() < 0) fail_system(path, "open the file");
  return file;
}

MappedFile::Mapping MappedFile::map(const Descriptor& file, const std::filesystem::path& path) {
  const struct stat status = status_of(file.number(), path);
  if (!S_ISREG(status.st_mode)) fail<FileError>("{}: not a regular file", path.string());
  if (status.st_size == 0) fail<FileError>("{}: the file is empty", path.string());
  const auto size = static_cast<size_t>(status.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number(), 0);
  if (address == MAP_FAILED) fail_system(path, "map the file");
  return Mapping(static_cast<const std::byte*>(address), Unmap{size});
}

MappedFile::MappedFile(const std::filesystem::path& path)
    : path_(path), file_(open(path)), mapping_(map(file_, path)), guard_(bytes()) {}

void MappedFile::check_intact() const {
  // The size as well: the end of the file's last page reads as zeros without a signal.
  const auto size = static_cast<uint64_t>(status_of(file_.number(), path_).st_size);
  if (size < bytes().size()) {
    fail<FileError>("{}: the file shrank while it was in use: {} bytes, expected {}", path_.string(), size,
                    bytes().size());
  }
  if (guard_.tripped())
    fail<FileError>("{}: a part of the file could not be read while it was in use", path_.string());
}

}  // namespace minfer
