#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/ranks/follow.h"
#include "engine/ranks/rank_backends.h"
#include "engine/ranks/ranks.h"
#include "kernels/comm/meeting_point.h"
#include "models/decoder/weights/shard.h"

namespace minfer {
namespace {

/// The state that all ranks share: a queue for each rank that follows, and the place where they meet.
class Exchange {
 public:
  Exchange(int32_t count, std::shared_ptr<RankFailure> failure)
      : queues_(static_cast<size_t>(count)),
        failure_(std::move(failure)),
        point_(count, failure_, kNoLimit) {}

  void send(std::span<const std::byte> message) {
    {
      const std::lock_guard lock(mutex_);
      failure_->check();
      for (size_t rank = 1; rank < queues_.size(); ++rank)
        queues_[rank].emplace_back(message.begin(), message.end());
    }
    changed_.notify_all();
  }

  std::vector<std::byte> receive(int32_t rank) {
    std::unique_lock lock(mutex_);
    std::deque<std::vector<std::byte>>& queue = queues_[static_cast<size_t>(rank)];
    while (!changed_.wait_for(lock, kCheckEvery, [&] { return !queue.empty(); }))
      failure_->check();
    std::vector<std::byte> message = std::move(queue.front());
    queue.pop_front();
    return message;
  }

  int64_t least(Rank rank, int64_t value) {
    point_.come(rank, &value);
    int64_t least = value;
    for (int32_t of = 0; of < rank.count; ++of)
      least = std::min(least, *static_cast<const int64_t*>(point_.brought(of)));
    point_.leave(rank);
    return least;
  }

 private:
  static constexpr std::chrono::milliseconds kCheckEvery{20};
  static constexpr std::chrono::hours kNoLimit{24 * 365};  // however long a model takes to load

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::deque<std::vector<std::byte>>> queues_;
  std::shared_ptr<RankFailure> failure_;
  MeetingPoint point_;
};

class ThreadChannel final : public RankChannel {
 public:
  ThreadChannel(Rank rank, Exchange& exchange) : rank_(rank), exchange_(exchange) {}
  Rank rank() const override { return rank_; }
  void send(std::span<const std::byte> message) override { exchange_.send(message); }
  std::span<const std::byte> receive() override { return message_ = exchange_.receive(rank_.index); }
  int64_t least(int64_t value) override { return exchange_.least(rank_, value); }

 private:
  Rank rank_;
  Exchange& exchange_;
  std::vector<std::byte> message_;
};

std::vector<std::unique_ptr<ModelShard>> shares_of(const ModelSource& source, int32_t count) {
  std::vector<std::unique_ptr<ModelShard>> shares;
  for (int32_t rank = 0; rank < count; ++rank)
    shares.push_back(std::make_unique<ModelShard>(source, Rank{rank, count}));
  return shares;
}

class ThreadRanks final : public Ranks {
 public:
  ThreadRanks(const ModelSource& source, const EngineOptions& options, int32_t logit_slice)
      : shares_(shares_of(source, options.tensor_parallel_size)),
        backends_(options, source, failure_),
        exchange_(options.tensor_parallel_size, failure_),
        channel_({0, options.tensor_parallel_size}, exchange_),
        ops_(static_cast<size_t>(options.tensor_parallel_size) - 1) {
    for (int32_t rank = 1; rank < options.tensor_parallel_size; ++rank)
      samplers_.push_back(backends_.make_counters(rank));
    try {
      for (int32_t rank = 1; rank < options.tensor_parallel_size; ++rank)
        threads_.emplace_back([this, rank, options, logit_slice] { run(rank, options, logit_slice); });
    } catch (const std::exception& error) {
      failure_->set(error.what());  // those that have started wait for steps
      throw;
    }
  }

  /// Ends the others.
  ~ThreadRanks() override {
    // If the first rank has no model yet, or is in the middle of a step, it has failed: the others wait for it in vain.
    if (!is_between_steps()) failure_->set("the first rank has ended");
    try {
      order_end();
    } catch (const std::exception&) {  // a rank has failed: they all end by that
    }
  }

  ThreadRanks(const ThreadRanks&) = delete;
  ThreadRanks& operator=(const ThreadRanks&) = delete;

  ModelSource& share() override { return *shares_.front(); }
  std::unique_ptr<Backend> make_backend() override { return backends_.make(0); }
  void check() override { failure_->check(); }

  void take_steps(std::vector<RankStep>& steps) override {
    steps.clear();
    const std::lock_guard lock(steps_mutex_);
    std::swap(steps, steps_);
  }

  std::vector<RankCounters> counters() const override {
    std::vector<RankCounters> counters;
    for (size_t i = 0; i < samplers_.size(); ++i) {
      if (samplers_[i] != nullptr)
        counters.push_back(
            {.rank = static_cast<int32_t>(i) + 1, .sampler = samplers_[i].get(), .ops = ops_[i]});
    }
    return counters;
  }

  void watch_stamps(RankStampSink* sink) override {
    const std::lock_guard lock(stamps_mutex_);
    stamps_sink_ = sink;
  }

 private:
  RankChannel& channel() override { return channel_; }
  void use_tracer(DeviceTracer* tracer) override { tracer_ = tracer; }

  std::vector<RankTrace> take_traces() override {
    const std::lock_guard lock(steps_mutex_);
    std::ranges::sort(traces_, {}, &RankTrace::rank);
    return std::exchange(traces_, {});
  }

  void run(int32_t rank, const EngineOptions& options, int32_t logit_slice) {
    const auto index = static_cast<size_t>(rank);
    ThreadChannel channel({rank, options.tensor_parallel_size}, exchange_);
    try {
      follow(
          *shares_[index], options, logit_slice, backends_.make(rank), channel,
          {.on_ready = [&](std::span<const OpInfo> ops) { ops_[index - 1].assign(ops.begin(), ops.end()); },
           .on_stamps =
               [this, rank](int64_t step, const StepStamps& stamps) {
                 const std::lock_guard lock(stamps_mutex_);
                 if (stamps_sink_ != nullptr) stamps_sink_->consume_stamps(rank, step, stamps);
               },
           .on_step =
               [this](const RankStep& step) {
                 const std::lock_guard lock(steps_mutex_);
                 steps_.push_back(step);
               },
           .tracer = [this] { return tracer_.load(); },
           .on_trace =
               [this](RankTrace trace) {
                 const std::lock_guard lock(steps_mutex_);
                 traces_.push_back(std::move(trace));
               }});
    } catch (const std::exception& error) {
      failure_->set(fmt::format("rank {} of {}: {}", rank, options.tensor_parallel_size, error.what()));
    }
  }

  std::shared_ptr<RankFailure> failure_ = std::make_shared<RankFailure>();
  std::vector<std::unique_ptr<ModelShard>> shares_;
  RankBackends backends_;
  Exchange exchange_;
  ThreadChannel channel_;
  /// One for each rank from 1 on. They are not the backends', since a backend ends with its rank if that fails.
  std::vector<std::unique_ptr<CounterSampler>> samplers_;
  std::vector<std::vector<OpInfo>> ops_;  ///< of ranks 1 on; each is made before its rank is ready
  std::mutex steps_mutex_;
  std::vector<RankStep> steps_;    ///< not yet taken
  std::vector<RankTrace> traces_;  ///< not yet taken
  std::atomic<DeviceTracer*> tracer_{nullptr};
  std::mutex stamps_mutex_;
  RankStampSink* stamps_sink_ = nullptr;  ///< guarded by it, also while it is told
  std::vector<std::jthread> threads_;
};

}  // namespace

std::unique_ptr<Ranks> make_thread_ranks(const ModelSource& source, const EngineOptions& options,
                                         int32_t logit_slice) {
  return std::make_unique<ThreadRanks>(source, options, logit_slice);
}

}  // namespace minfer
