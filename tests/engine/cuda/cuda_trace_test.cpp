// Steps of an engine traced by CUPTI: graphs made long before, eager steps, several ranges in one process.
#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "kernels/cuda/profiler/cupti_library.h"
#include "kernels/cuda/profiler/cupti_tracer.h"
#include "kernels/cuda/profiler/device_timer.h"
#include "profiling/trace/range_analysis.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/engine/engine_run.h"
#include "tests/support/last_steps.h"

namespace minfer {
namespace {

constexpr int32_t kTracedSequences = 16;
constexpr int64_t kTracedSteps = 8;

class CudaTraceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
    cuda::CuptiTracer tracer;
    const std::string error = tracer.start(1);
    tracer.stop();
    if (!error.empty()) GTEST_SKIP() << error;
  }

  static std::unique_ptr<Engine> make_engine(bool graphs, const std::string& model) {
    EngineOptions options;
    options.device = DeviceChoice::cuda;
    options.max_model_len = 256;
    options.max_num_seqs = kTracedSequences;
    options.num_blocks = kTracedSequences * 16;
    options.cuda_graphs = graphs;
    auto engine = std::make_unique<Engine>(open_model(model), options);
    for (int32_t i = 0; i < kTracedSequences; ++i)
      engine->submit(test::greedy_request(std::to_string(i), {i + 1, i + 2, i + 3}, 120));
    return engine;
  }

  /// Traces the next `count` steps and calls `between_steps` after each.
  static RangeTrace trace(
      Engine& engine, int64_t count, int64_t most_records = ProfileRange::kMostRecords,
      const std::function<void()>& between_steps = [] {}) {
    std::optional<RangeTrace> range;
    const int64_t first = engine.next_step();
    engine.set_profile_range({.first_step = first,
                              .last_step = first + count - 1,
                              .most_records = most_records,
                              .on_trace = [&](RangeTrace traced) { range = std::move(traced); }});
    for (; engine.has_profile_range() && engine.has_work(); between_steps())
      engine.step();
    EXPECT_TRUE(range.has_value());
    return std::move(range).value_or(RangeTrace{});
  }

  /// Runs all requests to the end. Returns how many finish.
  static int32_t num_finishing(Engine& engine) {
    int32_t count = 0;
    while (engine.has_work()) {
      for (const RequestOutput& output : engine.step())
        count += output.finish.has_value() ? 1 : 0;
    }
    return count;
  }

  /// Median time of the next steps, to be printed beside the time of traced ones.
  static double median_step_us(Engine& engine, size_t count) {
    for (size_t i = 0; i < count + 1; ++i)
      engine.step();
    std::vector<double> times;
    for (const StepRecord& record : test::last_steps(engine.recorder(), count))
      times.push_back(static_cast<double>(record.wall_ns()) * 1e-3);
    std::ranges::sort(times);
    return times[times.size() / 2];
  }

  static void expect_sound(const RangeAnalysis& analysis, int64_t first, bool graphs) {
    const RangeLine& line = analysis.line();
    ASSERT_EQ(line.error, "");
    EXPECT_EQ(line.first_step, first);
    EXPECT_EQ(line.steps, kTracedSteps);
    EXPECT_EQ(line.dropped, 0);
    EXPECT_EQ(line.invalid, 0);
    EXPECT_EQ(line.outside, 0);
    EXPECT_EQ(line.missing, 0) << "launches without a kernel";
    EXPECT_EQ(line.unmatched, 0) << "kernels without a launch";
    EXPECT_GT(line.busy_us, 0.0);
    EXPECT_EQ(line.idle.unknown.gaps, 0) << "launched by no call that is known";
    EXPECT_LT(line.idle.start.gaps, kTracedSteps);
    analysis.for_each_step([](const StepKernels& step) {
      EXPECT_TRUE(step.is_whole());
      EXPECT_GT(step.attributed_us, 0.0);
      EXPECT_LE(step.attributed_us, step.busy_us);
    });
    std::map<std::string, int> unmatched;
    int64_t num_graph_kernels = 0, last_begin = 0;
    analysis.for_each_kernel([&](const KernelLine& kernel) {
      EXPECT_GE(kernel.start_ns, last_begin);
      EXPECT_GT(kernel.us, 0.0);
      EXPECT_LE(kernel.own_us, kernel.us);
      EXPECT_GE(kernel.launch_delay_us, 0.0) << kernel.kernel << " was launched by no call that is known";
      last_begin = kernel.start_ns;
      num_graph_kernels += kernel.in_graph ? 1 : 0;
      if (kernel.kind == ActivityKind::kernel && kernel.launch < 0) ++unmatched[kernel.kernel];
    });
    for (const auto& [name, count] : unmatched)
      std::printf("fits no launch: %s, %d times\n", name.c_str(), count);
    EXPECT_EQ(num_graph_kernels > 0, graphs);
  }

  /// Expects kernels and stamps on one clock, and an op's kernels to be about as long as its interval.
  static void expect_plausible(const RangeAnalysis& analysis, const std::vector<TracedStep>& steps) {
    constexpr int64_t kMostApartNs = 50'000;
    ASSERT_EQ(analysis.steps().size(), steps.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      const StepStamps& stamps = steps[i].stamps;
      std::vector<bool> seen(stamps.ops.size(), false);
      for (const TracedActivity& activity : analysis.steps()[i].activities) {
        if (activity.run < 0) continue;
        const auto run = static_cast<size_t>(activity.run);
        // A kernel may be placed while others run, but it stamps its begin before its end.
        if (!seen[run]) {
          EXPECT_GT(activity.end_ns(), stamps.ops[run].begin_ns - kMostApartNs);
          EXPECT_LT(activity.begin_ns, stamps.ops[run].begin_ns + kMostApartNs);
        }
        seen[run] = true;
      }
      EXPECT_TRUE(std::ranges::all_of(seen, std::identity{}))
          << "an op run of step " << i << " has no kernel";
    }
    const Attribution& sum = analysis.line().attribution;
    EXPECT_LT(sum.own_difference(), 0.5);
    for (const OpDifference& op : sum.ops)
      EXPECT_GT(op.kernel_us, 0.0) << op.op;
  }

  static void print(const char* what, const RangeAnalysis& analysis) {
    const RangeLine& line = analysis.line();
    const Attribution& sum = line.attribution;
    const double steps = static_cast<double>(std::max<int64_t>(1, sum.steps));
    std::printf(
        "%s: %lld kernels, %lld copies; a step %.1f us by stamps, %.1f us with a kernel, %.1f us idle; clock "
        "%s, "
        "overhead %.1f ms\n",
        what, static_cast<long long>(line.kernels), static_cast<long long>(line.copies), sum.step_us / steps,
        line.busy_us / steps, line.idle_us / steps, line.own_clock ? "converted" : "ours",
        line.overhead_us * 1e-3);
    std::printf("stamps against durations %.2f %%, against time without overlap %.2f %% of the step\n",
                100.0 * sum.difference(), 100.0 * sum.own_difference());
    std::printf("%-20s %6s %10s %10s %10s\n", "op", "runs", "stamps us", "kernels us", "own us");
    for (const OpDifference& op : sum.ops) {
      std::printf("%-20s %6lld %10.1f %10.1f %10.1f\n", op.op.c_str(),
                  static_cast<long long>(op.runs / sum.steps), op.stamped_us / steps, op.kernel_us / steps,
                  op.own_us / steps);
    }
  }

  static void trace_twice(bool graphs, const char* model) {
    const std::unique_ptr<Engine> engine = make_engine(graphs, model);
    for (int i = 0; i < 12; ++i)  // the graph is captured and replayed
      engine->step();
    const double before_us = median_step_us(*engine, 16);
    for (int round = 0; round < 2; ++round) {
      SCOPED_TRACE(round);
      const int64_t first = engine->next_step();
      const int64_t begin_ns = now_ns();
      RangeTrace range = trace(*engine, kTracedSteps);
      std::printf("round %d: %lld steps in %.1f ms\n", round, static_cast<long long>(kTracedSteps),
                  static_cast<double>(now_ns() - begin_ns) * 1e-6);
      const std::vector<TracedStep> steps = range.steps;
      const RangeAnalysis analysis(std::move(range), engine->ops());
      print(graphs ? "graph" : "eager", analysis);
      expect_sound(analysis, first, graphs);
      expect_plausible(analysis, steps);
      std::printf("median step: %.1f us before, %.1f us now\n", before_us, median_step_us(*engine, 16));
    }
    EXPECT_EQ(num_finishing(*engine), kTracedSequences) << "steps go on to the end";
  }
};

TEST_F(CudaTraceTest, GraphsThatWereMadeLongBefore) {
  trace_twice(true, "synthetic:llama-3.2-1b:bf16");
}

TEST_F(CudaTraceTest, EagerSteps) {
  trace_twice(false, "synthetic:llama-3.2-1b:bf16");
}

TEST_F(CudaTraceTest, QuantisedWeights) {
  trace_twice(true, "synthetic:llama-3.2-1b:q4_k_m");
}

TEST_F(CudaTraceTest, PromptsAndTheStepsInWhichGraphsAreMade) {
  const std::unique_ptr<Engine> engine = make_engine(true, "synthetic:llama-3.2-1b:bf16");
  RangeTrace range = trace(*engine, kTracedSteps);
  const std::vector<TracedStep> steps = range.steps;
  const RangeAnalysis analysis(std::move(range), engine->ops());
  print("from the first step on", analysis);
  EXPECT_EQ(analysis.line().missing, 0);
  EXPECT_EQ(analysis.line().steps, kTracedSteps);
  expect_plausible(analysis, steps);
}

// Like windows of hardware counters: from another thread, also within steps' windows.
TEST_F(CudaTraceTest, TheProfilersOwnKernelsBelongToNoStep) {
  const std::unique_ptr<Engine> engine = make_engine(true, "synthetic:llama-3.2-1b:bf16");
  for (int i = 0; i < 12; ++i)
    engine->step();
  const cuda::CuptiHold hold;  // like a sampler of counters: CUPTI stays while the other thread launches
  cuda::DeviceTimer timer;
  timer.now_ns();  // the first call loads its code
  std::atomic<bool> ends = false;
  std::atomic<int64_t> num_asked = 0;
  std::jthread asks([&] {
    for (; !ends; ++num_asked)
      timer.now_ns();
  });
  const int64_t first = engine->next_step();
  // Between any two steps the other thread asks at least once more, however rarely it gets to run.
  RangeTrace range = trace(*engine, kTracedSteps, ProfileRange::kMostRecords, [&] {
    for (const int64_t before = num_asked; num_asked < before + 2;)
      std::this_thread::yield();
  });
  ends = true;
  asks.join();
  const RangeAnalysis analysis(std::move(range), engine->ops());
  expect_sound(analysis, first, true);
  EXPECT_GT(analysis.line().of_profiler, 0);
  EXPECT_TRUE(analysis.line().strangers.empty());
}

TEST_F(CudaTraceTest, TracedTokensAreTheSame) {
  std::map<std::string, std::vector<TokenId>> expected;
  for (const bool traces : {false, true}) {
    const std::unique_ptr<Engine> engine = make_engine(true, "synthetic:llama-3.2-1b:bf16");
    test::Answers answers;
    if (traces) {
      engine->set_profile_range({.first_step = 5, .last_step = 30});
    }
    answers.run(*engine);
    for (const auto& [id, answer] : answers.all()) {
      if (!traces) expected[id] = answer.tokens;
      EXPECT_EQ(answer.tokens, expected[id]) << id;
    }
  }
}

TEST_F(CudaTraceTest, ATraceThatIsFullEndsAndStepsGoOn) {
  const std::unique_ptr<Engine> engine = make_engine(true, "synthetic:llama-3.2-1b:bf16");
  for (int i = 0; i < 8; ++i)
    engine->step();
  const RangeTrace range = trace(*engine, 60, 500);
  EXPECT_EQ(range.error, "");
  EXPECT_LE(std::ssize(range.records.activities), 500);
  EXPECT_EQ(num_finishing(*engine), kTracedSequences);
}

TEST_F(CudaTraceTest, OneTracerAtATime) {
  cuda::CuptiTracer first, second;
  ASSERT_EQ(first.start(100), "");
  const std::string error = second.start(100);
  EXPECT_NE(error.find("CUPTI is held"), std::string::npos) << error;
  std::printf("%s\n", error.c_str());
  second.stop();
  first.stop();
  EXPECT_EQ(second.start(100), "");
  second.stop();
}

}  // namespace
}  // namespace minfer
