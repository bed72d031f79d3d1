// The cost of each live-page event for the server: the report on the last 1,000 steps of an 8B model, 80 of them new (160 steps/s);
// the same with 4,096 requests that ended within them; and the same with no new steps.

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "profiling/json/json_reader.h"
#include "server/serving/profile/profile_summary.h"
#include "tests/support/paths.h"
#include "tests/support/server/test_server.h"

namespace minfer {
namespace {

constexpr int64_t kNewSteps = 80;

/// A recorder fed with decode steps of 64 sequences of an 8B model: each of its ops once, with one launch.
class Steps {
 public:
  Steps() : file_(read_profile(source_path("tests/benchmarks/results/cuda-2026-11-22-steps-b64.jsonl"))) {
    for (const KernelLaunch& launch : file_.launches)
      launches_.add(launch);
    file_.header.launches = &launches_;
    file_.header.detail = ProfileDetail::op;
    for (const OpInfo& op : file_.header.ops) {
      const auto found = std::ranges::find(file_.steps.front().ops, op.name, &OpSummary::op);
      launch_of_.push_back(
          found == file_.steps.front().ops.end() || found->launches.empty() ? -1 : found->launches[0]);
    }
    run(1200);
  }
  void run(int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      run_step();
  }
  const StepRecorder& recorder() const { return recorder_; }
  const ProfileHeader& header() const { return file_.header; }

 private:
  void run_step() {
    recorder_.begin_step();
    StepBatch batch;
    batch.shape.decode_tokens = batch.shape.decode_sequences = batch.shape.decode_logit_rows = 64;
    batch.shape.decode_context = batch.shape.decode_attended = 64 * 512;
    batch.kv_blocks_used = 2048;
    batch.kv_blocks_total = 55914;
    recorder_.set_batch(batch);
    int64_t clock_ns = now_ns();
    const auto& ops = file_.header.ops;
    for (size_t op = 0; op < ops.size(); ++op) {
      if (ops[op].scope == TokenScope::prefill) continue;
      StepStamps& stamps = *recorder_.stamps();
      stamps.add({.op = static_cast<OpId>(op), .begin_ns = clock_ns, .num_launches = 1});
      stamps.launches.push_back(launch_of_[op]);
      clock_ns += 10'000 + static_cast<int64_t>(op) * 97 % 31'000;
    }
    recorder_.stamps()->end_ns = clock_ns;
    recorder_.end_step();
  }

  ProfileFile file_;
  LaunchTable launches_;
  std::vector<int32_t> launch_of_;  ///< by op
  StepRecorder recorder_{{.num_ops = file_.header.ops.size(), .asynchronous = true}};
};

void page_event(benchmark::State& state) {
  Steps steps;
  LiveProfile profile(steps.recorder(), steps.header());
  profile.refresh();
  PageEvents events;
  RecentRecords kept, none;
  for (size_t i = 0; i < RecentRecords::kMost; ++i) {
    EndedRequest ended;
    ended.id = "chatcmpl-" + std::to_string(i);
    ended.end_ns = std::numeric_limits<int64_t>::max();
    ended.first_token_ns = 1;
    ended.num_prefixes = EndedRequest::kMostPrefixes;
    ended.prefix_hashes.fill(static_cast<uint32_t>(i));
    kept.consume_request(ended);
  }
  const std::unique_ptr<Engine> engine = test::make_scripted_engine({});
  EngineService service(*engine, {.on_outputs = [] {}, .on_failure = [](const std::string&) {}});
  EventLoop loop;
  ServerLog log(LogFormat::text, LogLevel::off);
  const Metrics metrics("scripted", engine->options(), std::make_shared<prometheus::Registry>());
  const ProfileSources sources{
      loop, *engine, service, metrics, log, nullptr, state.range(1) != 0 ? kept : none, "scripted"};
  size_t bytes = 0;
  for (auto _ : state) {
    state.PauseTiming();
    steps.run(state.range(0));
    state.ResumeTiming();
    profile.refresh();
    bytes = events.json(profile, sources, kept.last_requests(PageEvents::kRequests)).size();
  }
  state.counters["bytes"] = static_cast<double>(bytes);
}
BENCHMARK(page_event)
    ->Args({kNewSteps, 0})
    ->Args({kNewSteps, 1})
    ->Args({0, 0})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace minfer

BENCHMARK_MAIN();
