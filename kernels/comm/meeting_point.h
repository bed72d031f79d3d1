#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/comm/rank.h"
#include "kernels/comm/rank_failure.h"

namespace minfer {

/// A point where the threads of all ranks meet, each with a pointer that the others can read. Each rank calls from one thread at a time.
class MeetingPoint {
 public:
  /// `patience`: how long a rank waits for the others before it sets `failure`.
  MeetingPoint(int32_t count, std::shared_ptr<RankFailure> failure, std::chrono::milliseconds patience);

  /// The pointer that rank `index` has brought; valid until all have left.
  void* brought(int32_t index) const { return brought_[static_cast<size_t>(index)]; }
  /// Waits for all ranks, each of which brings a pointer. Throws DeviceError, in every rank, once a rank has failed or does not come.
  void come(Rank rank, void* bring) {
    brought_[static_cast<size_t>(rank.index)] = bring;
    meet(rank);
  }
  /// Waits until all ranks have finished reading what was brought. Throws as come() does.
  void leave(Rank rank) { meet(rank); }

 private:
  void meet(Rank rank);

  std::mutex mutex_;
  std::condition_variable all_are_here_;
  std::vector<void*> brought_;
  int32_t present_ = 0;
  std::atomic<uint64_t> meetings_ = 0;
  std::shared_ptr<RankFailure> failure_;
  std::chrono::milliseconds patience_;
};

}  // namespace minfer
