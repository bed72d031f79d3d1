#include "kernels/comm/rank_exchange.h"

#include <utility>

#include <fmt/format.h>

#include "kernels/comm/meeting_point.h"

namespace minfer {
namespace {

class ThreadExchange final : public RankExchange {
 public:
  ThreadExchange(int32_t count, std::shared_ptr<RankFailure> failure, std::chrono::milliseconds patience)
      : failure_(std::move(failure)), point_(count, failure_, patience) {}

  std::vector<std::string> exchange(Rank rank, const std::string& own) override {
    point_.come(rank, const_cast<std::string*>(&own));
    std::vector<std::string> all;
    for (int32_t from = 0; from < rank.count; ++from)
      all.push_back(*static_cast<const std::string*>(point_.brought(from)));
    point_.leave(rank);
    return all;
  }
  RankFailure& failure() const override { return *failure_; }
  void fail(const std::string& why) override { failure_->set(why); }
  std::string name_of(int32_t rank) const override { return fmt::format("rank {}", rank); }

 private:
  std::shared_ptr<RankFailure> failure_;
  MeetingPoint point_;
};

class ProcessExchange final : public RankExchange {
 public:
  ProcessExchange(std::shared_ptr<ProcessGroup> processes, std::chrono::milliseconds patience)
      : processes_(std::move(processes)), patience_(patience) {}

  std::vector<std::string> exchange(Rank, const std::string& own) override {
    return processes_->exchange(ProcessGroup::Tag::exchange, own, patience_);
  }
  RankFailure& failure() const override { return processes_->failure(); }
  void fail(const std::string& why) override { processes_->fail(why); }
  std::string name_of(int32_t rank) const override { return processes_->name_of(rank); }

 private:
  std::shared_ptr<ProcessGroup> processes_;
  std::chrono::milliseconds patience_;
};

}  // namespace

std::unique_ptr<RankExchange> make_thread_exchange(int32_t count, std::shared_ptr<RankFailure> failure,
                                                   std::chrono::milliseconds patience) {
  return std::make_unique<ThreadExchange>(count, std::move(failure), patience);
}

std::unique_ptr<RankExchange> make_process_exchange(std::shared_ptr<ProcessGroup> processes,
                                                    std::chrono::milliseconds patience) {
  return std::make_unique<ProcessExchange>(std::move(processes), patience);
}

}  // namespace minfer
