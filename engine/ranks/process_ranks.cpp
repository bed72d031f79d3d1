#include "engine/ranks/process_ranks.h"

#include <array>
#include <cstring>
#include <deque>
#include <exception>
#include <thread>
#include <type_traits>

#include "engine/ranks/follow.h"
#include "engine/ranks/rank_backends.h"
#include "kernels/base/error.h"
#include "kernels/comm/process_group.h"
#include "models/decoder/weights/shard.h"

namespace minfer {
namespace {

using Tag = ProcessGroup::Tag;

static_assert(std::is_trivially_copyable_v<RankStep>, "it is sent as bytes to the same build of the program");

/// The most reports under way: the first rank takes them after every step.
constexpr size_t kMostUnreported = 64;

/// Owned by a rank of another process. It reports the time of each step to the first rank, a message a step, and waits for no answer.
class StepReports {
 public:
  StepReports(std::shared_ptr<ProcessGroup> processes, std::chrono::milliseconds patience)
      : processes_(std::move(processes)), patience_(patience) {}

  void send(const RankStep& step) {
    while (!under_way_.empty() && processes_->is_done(under_way_.front().transfer))
      under_way_.pop_front();
    if (under_way_.size() >= kMostUnreported) {
      processes_->wait({&under_way_.front().transfer, 1}, "taking what steps took", patience_);
      under_way_.pop_front();
    }
    Sent& sent = under_way_.emplace_back();
    sent.step = {step};
    sent.transfer = processes_->begin_send(0, Tag::steps, std::as_bytes(std::span(sent.step)));
  }

  /// Sends the last message and waits until the first rank has taken all.
  void end() {
    const Transfer end = processes_->begin_send(0, Tag::steps, {});
    for (const Sent& sent : under_way_)
      processes_->wait({&sent.transfer, 1}, "taking what steps took", patience_);
    under_way_.clear();
    processes_->wait({&end, 1}, "taking what steps took", patience_);
  }

 private:
  struct Sent {
    std::array<RankStep, 1> step;
    Transfer transfer;
  };
  std::shared_ptr<ProcessGroup> processes_;
  std::chrono::milliseconds patience_;
  std::deque<Sent> under_way_;
};

/// Appends the reports that have come from all other ranks, without waiting. Only the first rank calls it.
void take_reports(ProcessGroup& processes, std::vector<RankStep>& steps) {
  std::vector<std::byte> message;
  for (int32_t other = 1; other < processes.rank().count; ++other) {
    while (processes.receive_if_there(other, Tag::steps, message)) {
      if (message.size() != sizeof(RankStep))
        fail("{}: {} bytes of what a step took, expected {}", processes.name_of(other), message.size(),
             sizeof(RankStep));
      std::memcpy(&steps.emplace_back(), message.data(), message.size());
    }
  }
}

/// Waits for the end of all other ranks' reports, and ignores reports before the end.
void end_reports(ProcessGroup& processes, std::chrono::milliseconds patience) {
  constexpr std::chrono::microseconds kPause{100};
  const auto end = std::chrono::steady_clock::now() + patience;
  std::vector<std::byte> message;
  for (int32_t other = 1; other < processes.rank().count; ++other) {
    for (;;) {
      if (processes.receive_if_there(other, Tag::steps, message)) {
        if (message.empty()) break;
        continue;
      }
      processes.check();
      if (std::chrono::steady_clock::now() > end)
        fail("{} did not end in {} ms", processes.name_of(other), patience.count());
      std::this_thread::sleep_for(kPause);
    }
  }
}

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
        "tensor-parallel-size: {}, expected {}, the number of processes that the launcher started: each "
        "process is one rank with one GPU (several processes of several ranks each are not supported)",
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
