#include "models/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/error.h"

namespace minfer {
namespace {

/// Closes a descriptor: a mapping does not need it any more.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int number() const { return number_; }

 private:
  int number_;
};

[[noreturn]] void fail_system(const std::filesystem::path& path, const char* action) {
  fail<FileError>("{}: cannot {}: {}", path.string(), action, std::strerror(errno));
}

std::span<const std::byte> map(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a named pipe without a writer would wait for ever.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.number() < 0) fail_system(path, "open the file");
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) fail_system(path, "read the file's size");
  if (!S_ISREG(status.st_mode)) fail<FileError>("{}: not a regular file", path.string());
  if (status.st_size == 0) fail<FileError>("{}: the file is empty", path.string());
  const auto size = static_cast<size_t>(status.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number(), 0);
  if (address == MAP_FAILED) fail_system(path, "map the file");
  return {static_cast<const std::byte*>(address), size};
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : bytes_(map(path)) {}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace minfer
