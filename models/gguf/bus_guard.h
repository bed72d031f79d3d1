#pragma once

#include <cstddef>
#include <span>

namespace minfer {

/// Makes reads of a mapped range survive the loss of the file behind it. A page beyond the end of a file that
/// shrank, or one that a failing device cannot deliver, raises SIGBUS, which ends the process. While a guard
/// lives, such a read gives zeros instead and the guard is tripped; whoever uses the range asks tripped()
/// afterwards and reports the error.
///
/// The first guard installs a handler of SIGBUS for the process. A SIGBUS outside all guarded ranges goes to
/// the handler that was there before, or to the default action. Any thread may read a guarded range; the
/// object itself is not shared.
class BusGuard {
 public:
  /// `range` is a mapping that starts on a page. Throws Error beyond kMaxRanges guards.
  explicit BusGuard(std::span<const std::byte> range);
  BusGuard(BusGuard&& other) noexcept;
  BusGuard& operator=(BusGuard&&) = delete;
  ~BusGuard();

  bool tripped() const;

  static constexpr size_t kMaxRanges = 4096;

 private:
  static constexpr size_t kNone = kMaxRanges;
  size_t slot_ = kNone;  // in the table of ranges that the handler searches
};

}  // namespace minfer
