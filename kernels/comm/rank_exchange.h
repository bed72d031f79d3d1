#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "kernels/comm/process_group.h"
#include "kernels/comm/rank.h"
#include "kernels/comm/rank_failure.h"

namespace minfer {

/// Ranks tell each other texts at the start, before any faster exchange exists, and learn of each other's failure. Each rank calls
/// from one thread, except failure() and fail().
class RankExchange {
 public:
  virtual ~RankExchange() = default;
  /// Returns the texts of all ranks, by rank. All call it, in the same order. Throws DeviceError once a rank has failed or does not come.
  virtual std::vector<std::string> exchange(Rank rank, const std::string& own) = 0;
  virtual RankFailure& failure() const = 0;
  /// Sets the failure and tells all ranks. Any thread.
  virtual void fail(const std::string& why) = 0;
  /// Names a rank, for messages.
  virtual std::string name_of(int32_t rank) const = 0;
};

/// For `count` ranks that are threads of this process and share the object.
std::unique_ptr<RankExchange> make_thread_exchange(int32_t count, std::shared_ptr<RankFailure> failure,
                                                   std::chrono::milliseconds patience);
/// For the rank that this process is.
std::unique_ptr<RankExchange> make_process_exchange(std::shared_ptr<ProcessGroup> processes,
                                                    std::chrono::milliseconds patience);

}  // namespace minfer
