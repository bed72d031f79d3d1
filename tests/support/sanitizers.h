#pragma once

namespace minfer::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif
// With a sanitizer a process is much slower and keeps freed memory, so tests do not measure its time
// or its memory.

}  // namespace minfer::test
