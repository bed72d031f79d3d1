#include "engine/ranks/process_ranks.h"

#include <exception>

#include "engine/ranks/follow.h"
#include "engine/ranks/rank_backends.h"
#include "engine/ranks/step_reports.h"
#include "kernels/comm/process_group.h"
#include "models/decoder/weights/shard.h"

namespace minfer {
namespace {

class ProcessRanks final : public Ranks {
 public:
  ProcessRanks(const ModelSource& source, const EngineOptions& options)
      : processes_(options.processes),
        patience_(rank_patience(options)),
        has_gpus_(uses_cuda(options)),
        share_(source, processes_->rank()),
        backends_(options, source, nullptr),
        channel_(make_process_channel(processes_, patience_)) {}

  /// Ends the others.
  ~ProcessRanks() override {
    try {
      if (!is_between_steps()) return;  // the others are told when the processes part
      order_end();
      end_reports(*processes_, patience_);
      backends_.end_in_order();
      processes_->end_in_order(patience_);
    } catch (const std::exception&) {  // a rank has failed: they all end by that
    }
  }

  ProcessRanks(const ProcessRanks&) = delete;
  ProcessRanks& operator=(const ProcessRanks&) = delete;

  ModelSource& share() override { return share_; }
  std::unique_ptr<Backend> make_backend() override { return backends_.make(0); }

  void check() override { processes_->check(); }

  void take_steps(std::vector<RankStep>& steps) override {
    steps.clear();
    take_reports(*processes_, steps);
  }

  /// One for all of them: each reads a device of its own process at the most.
  std::vector<RankCounters> counters() const override {
    if (!has_gpus_) return {};
    const int32_t last = processes_->rank().count - 1;
    const std::string ranks =
        last == 1 ? "it is in another process" : fmt::format("ranks 1 to {} are in other processes", last);
    return {{.rank = 1, .missing = ranks + ", whose counters are not read"}};
  }

 private:
  RankChannel& channel() override { return *channel_; }

  std::shared_ptr<ProcessGroup> processes_;
  std::chrono::milliseconds patience_;
  bool has_gpus_;
  ModelShard share_;
  RankBackends backends_;
  std::unique_ptr<RankChannel> channel_;
};

}  // namespace

std::unique_ptr<Ranks> make_process_ranks(const ModelSource& source, const EngineOptions& options) {
  return std::make_unique<ProcessRanks>(source, options);
}

void choose_for_processes(EngineOptions& options) {
  const int32_t count = options.processes->rank().count;
  if (options.tensor_parallel_size != 1 && options.tensor_parallel_size != count) {
    fail(
        "tensor-parallel-size: {}, expected {}, the number of processes that the launcher started: each is "
        "one rank, with one GPU (several processes with several ranks each are not offered)",
        options.tensor_parallel_size, count);
  }
  options.tensor_parallel_size = count;
}

void follow_first_process(const ModelSource& source, const EngineOptions& options, int32_t logit_slice) {
  ProcessGroup& processes = *options.processes;
  ModelShard share(source, processes.rank());
  {
    RankBackends backends(options, source, nullptr);
    const std::unique_ptr<RankChannel> channel =
        make_process_channel(options.processes, rank_patience(options));
    StepReports reports(options.processes, rank_patience(options));
    follow(share, options, logit_slice, backends.make(processes.rank().index), *channel,
           {.on_step = [&](const RankStep& step) { reports.send(step); }});
    reports.end();
    backends.end_in_order();
  }
  processes.end_in_order(rank_patience(options));
  throw FollowedToEnd();
}

}  // namespace minfer
