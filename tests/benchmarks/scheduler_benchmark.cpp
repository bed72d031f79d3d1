// The cost of a step for the host before and after the model: schedule, build the batch, commit. It does
// not grow with the waiting or finished requests, or with the length of contexts.

#include <deque>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "engine/memory/kv_events.h"
#include "engine/scheduling/batch_builder.h"
#include "engine/scheduling/scheduler.h"

namespace minfer {
namespace {

constexpr int32_t kNumRunning = 256;
constexpr int32_t kNumSteps = 2000;

EngineOptions large_options() {
  EngineOptions options;
  options.max_model_len = 131072;
  options.num_blocks = 1 << 17;
  return options;
}

/// Takes the changes of the prefix cache and drops them.
class NoMirror final : public KvEventSink {
 public:
  bool wants_all() override { return false; }
  void take(KvEventBatch& batch) override { benchmark::DoNotOptimize(batch.hashes.data()); }
};

/// Scheduler and batch builder around a model that takes no time and always draws token 1.
class Host {
 public:
  explicit Host(const EngineOptions& options, bool with_events = false)
      : blocks_({options.num_blocks, options.block_size, options.enable_prefix_caching}),
        scheduler_(options, blocks_),
        builder_(options) {
    if (with_events) events_.emplace(blocks_, mirror_);
  }

  Sequence& enqueue(int32_t num_prompt_tokens, int32_t max_tokens) {
    std::vector<TokenId> prompt(static_cast<size_t>(num_prompt_tokens));
    for (TokenId& token : prompt)
      token = static_cast<TokenId>(random_() % 32000);
    return enqueue(std::move(prompt), max_tokens);
  }

  Sequence& enqueue(std::vector<TokenId> prompt, int32_t max_tokens) {
    Sequence& sequence =
        sequences_.emplace_back(std::to_string(sequences_.size()), std::move(prompt), max_tokens);
    scheduler_.enqueue(sequence);
    return sequence;
  }

  void step() {
    const ScheduledBatch& batch = scheduler_.schedule();
    benchmark::DoNotOptimize(builder_.build(batch).slots.data());
    constexpr TokenId kSampled[] = {1};
    for (const ScheduledSequence& each : batch.sequences) {
      scheduler_.commit(each, std::span(kSampled).first(static_cast<size_t>(each.num_logit_rows)));
      if (each.sequence->reached_max_tokens()) scheduler_.finish(*each.sequence, FinishReason::length);
    }
    if (events_) events_->end_step();
    num_tokens_ += batch.num_tokens;
  }

  void run_until_idle() {
    while (scheduler_.has_work())
      step();
  }

  Scheduler& scheduler() { return scheduler_; }
  int64_t num_tokens() const { return num_tokens_; }

 private:
  BlockManager blocks_;
  NoMirror mirror_;
  std::optional<KvEventFeed> events_;
  Scheduler scheduler_;
  BatchBuilder builder_;
  std::deque<Sequence> sequences_;
  std::mt19937_64 random_{1};
  int64_t num_tokens_ = 0;
};

/// 256 sequences decode, beside range(0) waiting and range(1) finished ones, with contexts of
/// range(2) tokens.
void decode_step(benchmark::State& state) {
  Host host(large_options());
  for (int64_t i = 0; i < state.range(1); ++i)
    host.enqueue(1, 1);
  host.run_until_idle();
  for (int32_t i = 0; i < kNumRunning; ++i)
    host.enqueue(static_cast<int32_t>(state.range(2)), 100'000);
  while (host.scheduler().num_running() < kNumRunning ||
         host.scheduler().running().back()->num_output_tokens() == 0) {
    host.step();
  }
  for (int64_t i = 0; i < state.range(0); ++i)
    host.enqueue(16, 16);
  for (auto _ : state)
    host.step();
}
BENCHMARK(decode_step)
    ->ArgNames({"waiting", "finished", "context"})
    ->Args({0, 0, 128})
    ->Args({10'000, 0, 128})
    ->Args({100'000, 0, 128})
    ->Args({0, 10'000, 128})
    ->Args({0, 100'000, 128})
    ->Args({0, 0, 4096})
    ->Iterations(kNumSteps)
    ->Unit(benchmark::kMicrosecond);

/// Balanced traffic: 256 slots, prompts of 128 tokens and 128 output tokens, so that two sequences end and
/// two arrive in each step; 1,000 wait. range(0): KV events are recorded.
void traffic_step(benchmark::State& state) {
  Host host(large_options(), state.range(0) != 0);
  for (int32_t i = 0; i < 1000 + 3 * kNumSteps; ++i)
    host.enqueue(128, 128);
  for (int32_t i = 0; i < 200; ++i)
    host.step();
  const int64_t before = host.num_tokens();
  for (auto _ : state)
    host.step();
  state.counters["tokens"] =
      static_cast<double>(host.num_tokens() - before) / static_cast<double>(state.iterations());
}
BENCHMARK(traffic_step)
    ->ArgName("events")
    ->Arg(0)
    ->Arg(1)
    ->Iterations(kNumSteps)
    ->Unit(benchmark::kMicrosecond);

/// A prefill chunk of 2,048 tokens in each step: block allocation, hashing and the arrays of its tokens. range(0): KV
/// events are recorded.
void prefill_step(benchmark::State& state) {
  Host host(large_options(), state.range(0) != 0);
  for (int32_t i = 0; i < kNumSteps / 40; ++i)
    host.enqueue(100'000, 1);
  for (auto _ : state)
    host.step();
}
BENCHMARK(prefill_step)
    ->ArgName("events")
    ->Arg(0)
    ->Arg(1)
    ->Iterations(kNumSteps)
    ->Unit(benchmark::kMicrosecond);

/// 255 sequences decode while the first in the queue, whose prompt is cached up to range(0) tokens, finds too
/// few blocks.
void blocked_step(benchmark::State& state) {
  EngineOptions options = large_options();
  options.num_blocks = 255 * (9 + kNumSteps / 16) + 1024;
  options.max_model_len = options.num_blocks * options.block_size;
  Host host(options);
  std::vector<TokenId> prompt(static_cast<size_t>(state.range(0)), 5);
  host.enqueue(prompt, 100'000);
  for (int32_t i = 0; i < 254; ++i)
    host.enqueue(128, 100'000);
  while (host.scheduler().running().size() < 255 ||
         host.scheduler().running().back()->num_output_tokens() == 0)
    host.step();
  prompt.resize(static_cast<size_t>(options.max_model_len) - 1, 6);
  host.enqueue(prompt, 1);
  for (auto _ : state)
    host.step();
  if (host.scheduler().num_waiting() != 1) state.SkipWithError("the first in the queue was admitted");
}
BENCHMARK(blocked_step)
    ->ArgNames({"cached"})
    ->Arg(16)
    ->Arg(8192)
    ->Iterations(kNumSteps)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace minfer

BENCHMARK_MAIN();
