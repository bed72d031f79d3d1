#include "models/gguf/mapped_file.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/error.h"

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

/// A guarded range of addresses; free while end is 0.
struct Range {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  std::atomic<bool> tripped = false;
};

/// A signal handler may take this lock: it only ever waits for another thread, because no code that holds the
/// lock reads guarded memory and so the thread that faults is never the holder.
class SpinLock {
 public:
  void lock() {
    while (flag_.test_and_set(std::memory_order_acquire)) {
    }
  }
  void unlock() { flag_.clear(std::memory_order_release); }

 private:
  std::atomic_flag flag_;
};

// Process-wide, as signal handlers are: memory that the handler may touch without allocating.
constinit SpinLock table_lock;
constinit std::array<Range, MappedFile::kMaxFiles> guarded_ranges;
struct sigaction previous_action;

/// Puts zeros in place of the file from the page of `address` to the end of its range: beyond the end of a file nothing is left, and one
/// mapping costs one signal however much of it is read. False if `address` is not guarded. Runs in a signal handler: POSIX does not list
/// mmap as safe there, but on Linux it is a bare system call.
bool replace_with_zeros(uintptr_t address) {
  const std::scoped_lock lock(table_lock);
  for (Range& range : guarded_ranges) {
    if (address < range.begin || address >= range.end) continue;
    const auto page_bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    const uintptr_t page = address & ~(page_bytes - 1);
    range.tripped = true;
    return ::mmap(reinterpret_cast<void*>(page), range.end - page, PROT_READ,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
  }
  return false;
}

void pass_on(int number, siginfo_t* info, void* context) {
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
    previous_action.sa_sigaction(number, info, context);
  } else if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
    previous_action.sa_handler(number);
  } else {
    ::sigaction(number, &previous_action, nullptr);  // returning repeats the access, and with it the signal
  }
}

void on_bus_error(int number, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  if (!replace_with_zeros(reinterpret_cast<uintptr_t>(info->si_addr))) pass_on(number, info, context);
  errno = saved_errno;
}

void install_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigemptyset(&action.sa_mask);
    if (::sigaction(SIGBUS, &action, &previous_action) != 0) fail("cannot install a handler of SIGBUS");
  });
}

int open_file(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a named pipe without a writer would wait for ever.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) fail_system(path, "open the file");
  return file;
}

/// The slot of the range in the table.
size_t guard(std::span<const std::byte> range) {
  install_handler();
  const std::scoped_lock lock(table_lock);
  const auto free = std::ranges::find(guarded_ranges, 0U, &Range::end);
  if (free == guarded_ranges.end()) fail("more than {} files are mapped", MappedFile::kMaxFiles);
  free->begin = reinterpret_cast<uintptr_t>(range.data());
  free->end = free->begin + range.size();
  free->tripped = false;
  return static_cast<size_t>(free - guarded_ranges.begin());
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : MappedFile(path, open_file(path)) {
  const struct stat status = status_of(file_, path);
  if (!S_ISREG(status.st_mode)) fail<FileError>("{}: not a regular file", path.string());
  if (status.st_size == 0) fail<FileError>("{}: the file is empty", path.string());
  const auto size = static_cast<size_t>(status.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file_, 0);
  if (address == MAP_FAILED) fail_system(path, "map the file");
  bytes_ = {static_cast<const std::byte*>(address), size};
  slot_ = guard(bytes_);
}

MappedFile::~MappedFile() {
  if (slot_ != kMaxFiles) {
    const std::scoped_lock lock(table_lock);
    guarded_ranges[slot_].begin = guarded_ranges[slot_].end = 0;
  }
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  ::close(file_);
}

void MappedFile::check_intact() const {
  // The size as well: the end of the file's last page reads as zeros without a signal.
  const auto size = static_cast<uint64_t>(status_of(file_, path_).st_size);
  if (size < bytes_.size()) {
    fail<FileError>("{}: the file shrank while it was in use: {} bytes, expected {}", path_.string(), size,
                    bytes_.size());
  }
  if (guarded_ranges[slot_].tripped)
    fail<FileError>("{}: a part of the file could not be read while it was in use", path_.string());
}

}  // namespace minfer
