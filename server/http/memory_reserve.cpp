#include "server/http/memory_reserve.h"

#include <atomic>
#include <cstddef>
#include <new>
#include <utility>

#include <sys/mman.h>

namespace minfer {
namespace {

constexpr size_t kReserveBytes = 16u << 20;  // mapped, not touched

std::atomic<void*> reserve{nullptr};
thread_local bool may_use = false;

/// operator new tries again when this returns.
void give_reserve() {
  void* memory = may_use ? reserve.exchange(nullptr) : nullptr;
  if (memory == nullptr) throw std::bad_alloc();
  ::munmap(memory, kReserveBytes);
}

}  // namespace

void set_memory_aside() {
  if (reserve.load(std::memory_order_relaxed) != nullptr) return;
  std::set_new_handler(give_reserve);
  void* memory = ::mmap(nullptr, kReserveBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void* none = nullptr;
  if (memory != MAP_FAILED && !reserve.compare_exchange_strong(none, memory)) ::munmap(memory, kReserveBytes);
}

bool use_memory_reserve(bool may) {
  return std::exchange(may_use, may);
}

}  // namespace minfer
