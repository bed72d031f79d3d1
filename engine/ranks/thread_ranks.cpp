#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/ranks/follow.h"
#include "engine/ranks/rank_backends.h"
#include "engine/ranks/ranks.h"
#include "models/decoder/weights/shard.h"

namespace minfer {
namespace {

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
        channels_(make_thread_channels(options.tensor_parallel_size, failure_)),
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
  RankChannel& channel() override { return *channels_.front(); }
  void use_tracer(DeviceTracer* tracer) override { tracer_ = tracer; }

  std::vector<RankTrace> take_traces() override {
    const std::lock_guard lock(steps_mutex_);
    std::ranges::sort(traces_, {}, &RankTrace::rank);
    return std::exchange(traces_, {});
  }

  void run(int32_t rank, const EngineOptions& options, int32_t logit_slice) {
    const auto index = static_cast<size_t>(rank);
    try {
      follow(
          *shares_[index], options, logit_slice, backends_.make(rank), *channels_[index],
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
  std::vector<std::unique_ptr<RankChannel>> channels_;
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
