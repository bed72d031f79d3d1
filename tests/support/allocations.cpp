#include "tests/support/allocations.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include <malloc.h>

namespace {

thread_local uint64_t allocations = 0;
thread_local int64_t held_bytes = 0;  // below 0 in a thread that frees what others allocated
thread_local int64_t held_at_reset = 0;
thread_local int64_t peak_bytes = 0;
thread_local int64_t until_refusal = -1;  // allocations; below 0: none is refused
std::atomic<size_t> refused_bytes{SIZE_MAX};

}  // namespace

#ifndef MINFER_THREAD_SANITIZER
static bool is_refused(size_t bytes) {
  if (until_refusal >= 0 && until_refusal-- == 0) return true;
  return bytes >= refused_bytes.load(std::memory_order_relaxed);
}

void* operator new(size_t bytes) {
  void* memory = nullptr;
  while (is_refused(bytes) || (memory = std::malloc(bytes)) == nullptr) {
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
  ++allocations;
  held_bytes += static_cast<int64_t>(malloc_usable_size(memory));
  peak_bytes = std::max(peak_bytes, held_bytes);
  return memory;
}
// Algorithms request their temporary buffers in this way, and return them to the operator delete below.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept {
  held_bytes -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  operator delete(memory);
}
#endif

namespace minfer::test {

uint64_t thread_allocations() {
  return allocations;
}

size_t thread_peak_bytes() {
  return static_cast<size_t>(peak_bytes - held_at_reset);
}

void reset_thread_peak() {
  held_at_reset = peak_bytes = held_bytes;
}

void refuse_allocation(int64_t after) {
  until_refusal = after;
}

RefusedAllocations::RefusedAllocations(size_t from_bytes) {
  refused_bytes = from_bytes;
}

RefusedAllocations::~RefusedAllocations() {
  refused_bytes = SIZE_MAX;
}

bool counts_allocations() {
  const uint64_t before = allocations;
  ::operator delete(::operator new(1));
  return allocations > before;
}

}  // namespace minfer::test
