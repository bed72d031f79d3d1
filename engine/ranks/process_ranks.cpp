#include <algorithm>
#include <cstring>
#include <exception>
#include <type_traits>

#include "engine/ranks/follow.h"
#include "engine/ranks/rank_backends.h"
#include "engine/ranks/ranks.h"
#include "kernels/base/error.h"
#include "kernels/comm/process_group.h"
#include "models/decoder/weights/shard.h"

namespace minfer {
namespace {

using Tag = ProcessGroup::Tag;

static_assert(std::is_trivially_copyable_v<RankStep>, "it is sent as bytes to the same build of the program");

class ProcessChannel final : public RankChannel {
 public:
  ProcessChannel(std::shared_ptr<ProcessGroup> processes, std::chrono::milliseconds patience)
      : processes_(std::move(processes)), orders_(processes_, Tag::order, "taking its orders", patience) {}

  Rank rank() const override { return processes_->rank(); }

  void send(std::span<const std::byte> message) override { orders_.send(1, rank().count - 1, message); }

  std::span<const std::byte> receive() override {
    processes_->receive(0, Tag::order, message_);
    return message_;
  }

  /// However long a model takes to load.
  int64_t least(int64_t value) override {
    for (const std::string& of_rank : processes_->exchange(Tag::meeting, std::to_string(value)))
      value = std::min<int64_t>(value, std::stoll(of_rank));
    return value;
  }

 private:
  std::shared_ptr<ProcessGroup> processes_;
  Outbox orders_;
  std::vector<std::byte> message_;
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

/// Waits for the end of all other ranks' reports, an empty message, and ignores reports before it.
void end_reports(ProcessGroup& processes, std::chrono::milliseconds patience) {
  std::vector<std::byte> message;
  for (int32_t other = 1; other < processes.rank().count; ++other) {
    do
      processes.receive(other, Tag::steps, message, patience);
    while (!message.empty());
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
        channel_(processes_, patience_) {}

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
  RankChannel& channel() override { return channel_; }

  std::shared_ptr<ProcessGroup> processes_;
  std::chrono::milliseconds patience_;
  bool has_gpus_;
  ModelShard share_;
  RankBackends backends_;
  ProcessChannel channel_;
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
    ProcessChannel channel(options.processes, rank_patience(options));
    Outbox reports(options.processes, Tag::steps, "taking what steps took", rank_patience(options));
    follow(
        share, options, logit_slice, backends.make(processes.rank().index), channel,
        {.on_step = [&](const RankStep& step) { reports.send(0, 0, std::as_bytes(std::span(&step, 1))); }});
    reports.send(0, 0, {});
    reports.wait();
    backends.end_in_order();
  }
  processes.end_in_order(rank_patience(options));
  throw FollowedToEnd();
}

}  // namespace minfer
