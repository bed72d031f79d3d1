#pragma once

#include <cstddef>
#include <cstdint>

namespace minfer::test {

#if defined(__SANITIZE_THREAD__)
#define MINFER_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MINFER_THREAD_SANITIZER 1
#endif
#endif

/// A program that uses the functions below gets an operator new that counts. Not under the thread sanitizer,
/// which insists on its own: there every count is 0, and a test that needs one skips.
#ifdef MINFER_THREAD_SANITIZER
inline constexpr bool kCountsAllocations = false;
#else
inline constexpr bool kCountsAllocations = true;
#endif

/// The number of calls of operator new by this thread so far.
uint64_t thread_allocations();

/// False if a sanitizer has installed its own operator new (TSan): then nothing is counted, and a test that
/// needs counts skips.
bool counts_allocations();

/// The most bytes that this thread held at once since the last reset, beyond those that it held then.
size_t thread_peak_bytes();
void reset_thread_peak();

/// Makes this thread's operator new throw std::bad_alloc once, after `after` more allocations. Below 0: it does not throw.
void refuse_allocation(int64_t after);

/// While this object lives, operator new refuses requests of that many bytes or more, in all threads.
class RefusedAllocations {
 public:
  explicit RefusedAllocations(size_t from_bytes);
  ~RefusedAllocations();
  RefusedAllocations(const RefusedAllocations&) = delete;
  RefusedAllocations& operator=(const RefusedAllocations&) = delete;
};

}  // namespace minfer::test
