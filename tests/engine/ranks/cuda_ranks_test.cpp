// Two GPUs give the results of one: logits within the bounds of their arithmetic, with and without graphs, a step ahead.
#include <algorithm>
#include <cstdio>
#include <future>
#include <optional>

#include <gmock/gmock.h>

#include "kernels/cuda/device/devices.h"
#include "profiling/trace/range_analysis.h"
#include "tests/support/engine/grammar_requests.h"
#include "tests/support/engine/rank_run.h"
#include "tests/support/paths.h"

namespace minfer {
namespace {

using test::failure_of;
using test::LogitTrace;
using testing::HasSubstr;

class CudaRanks : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_devices().size() < 2) GTEST_SKIP() << "fewer than two CUDA devices";
  }
};

EngineOptions gpu_options(int32_t ranks, DType dtype) {
  EngineOptions options = test::rank_options(DeviceChoice::cuda, ranks);
  options.dtype = dtype;
  return options;
}

void expect_same_logits(const ModelSource& source, DType dtype, double bound, AllReduceChoice choice) {
  SCOPED_TRACE(source.name());
  EngineOptions options = gpu_options(2, dtype);
  options.all_reduce = choice;
  const std::vector<LogitTrace> expected = test::rank_logits(source, gpu_options(1, dtype));
  const std::vector<LogitTrace> found = test::rank_logits(source, options);
  for (size_t i = 0; i < expected.size(); ++i) {
    // Everything behind a token that differs may differ too; the first row's logits have the same inputs.
    const auto vocab = static_cast<size_t>(source.config().vocab_size);
    size_t rows = 1;
    while (rows < found[i].tokens.size() && found[i].tokens[rows - 1] == expected[i].tokens[rows - 1])
      ++rows;
    EXPECT_LT(test::nmse(std::span(found[i].logits).first(rows * vocab),
                         std::span(expected[i].logits).first(rows * vocab)),
              bound)
        << "job " << i << ", " << rows << " rows";
    if (dtype == DType::f32) {
      EXPECT_EQ(found[i].tokens, expected[i].tokens) << i;
    }
  }
}

void expect_same_logits(const std::string& model, DType dtype, double bound, AllReduceChoice choice) {
  expect_same_logits(*open_model(model), dtype, bound, choice);
}

TEST_F(CudaRanks, ShareAVocabularyThatTheyDoNotDivide) {
  for (const AllReduceChoice choice : {AllReduceChoice::peer, AllReduceChoice::nccl}) {
    for (const char* model : {"granite", "gemma2"}) {
      const test::OddVocabulary source(open_model(source_path("tests/golden/") + model + ".gguf"));
      expect_same_logits(source, DType::f32, 1e-10, choice);
    }
  }
}

TEST_F(CudaRanks, GiveTheLogitsOfOneInF32) {
  for (const AllReduceChoice choice :
       {AllReduceChoice::peer, AllReduceChoice::nccl, AllReduceChoice::automatic}) {
    expect_same_logits("", DType::f32, 1e-10, choice);
    expect_same_logits(source_path("tests/golden/mixtral.gguf"), DType::f32, 1e-10, choice);
    for (const char* model :
         {"qwen3moe", "qwen2moe", "gpt-oss", "glm4moe", "llama4", "gemma3n-dense", "gemma4", "qwen35",
          "lfm2moe", "nemotron-h", "nemotron-h-experts", "kimi-linear", "command-r-plus"})
      expect_same_logits(source_path("tests/golden/") + model + ".gguf", DType::f32, 1e-10, choice);
    // Its delta nets carry rounding errors on: one GPU is 9e-11 from the CPU.
    expect_same_logits(source_path("tests/golden/qwen3next.gguf"), DType::f32, 1e-9, choice);
    expect_same_logits("synthetic:tiny:bf16", DType::f32, 1e-10, choice);
  }
}

// The other ranks launch a step as a whole, and wait for its tokens; the first rank's rows come later.
TEST_F(CudaRanks, DrawByGrammarsAStepAhead) {
  const auto answers_of = [](int32_t ranks, int32_t steps_ahead, bool graphs) {
    EngineOptions options = gpu_options(ranks, DType::f32);
    options.steps_ahead = steps_ahead;
    options.cuda_graphs = graphs;
    Engine engine(open_model("synthetic:tiny:bf16"), options);
    const auto grammar = test::grammar_for(engine, test::record_grammar());
    const auto digits = test::grammar_for(engine, test::digits(10, 60));
    for (int32_t i = 0; i < 12; ++i) {
      const std::string id = std::to_string(i);
      const std::vector<TokenId> prompt{300 + i, 301, 302};
      engine.submit(i % 3 == 0 ? test::greedy_request(id, prompt, 50)
                               : test::constrained_request(id, prompt, i % 3 == 1 ? grammar : digits,
                                                           static_cast<uint64_t>(i)));
    }
    return test::Answers().run(engine);
  };
  const test::Answers expected = answers_of(1, 0, true);
  for (const bool graphs : {true, false}) {
    const test::Answers found = answers_of(2, 1, graphs);
    size_t num_equal = 0;
    for (const auto& [id, answer] : expected.all())
      num_equal += found.at(id).tokens == answer.tokens;
    EXPECT_GE(num_equal + 1, expected.size()) << "but where rounding decides";
  }
}

/// Each GPU has the scales of its own columns, like a rank on the CPU.
TEST_F(CudaRanks, GiveTheLogitsOfTheCpusRanksInFp8) {
  const auto source = open_model("synthetic:tiny:bf16");
  EngineOptions on_cpu = test::rank_options(DeviceChoice::cpu, 2);
  EngineOptions on_gpus = gpu_options(2, DType::f32);
  on_cpu.quantization = on_gpus.quantization = DType::fp8;
  const std::vector<LogitTrace> expected = test::rank_logits(*source, on_cpu);
  const std::vector<LogitTrace> found = test::rank_logits(*source, on_gpus);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_LT(test::nmse(found[i].logits, expected[i].logits), 1e-7) << i;
    EXPECT_EQ(found[i].tokens, expected[i].tokens) << i;
  }
}

TEST_F(CudaRanks, GiveTheLogitsOfOneInBf16) {
  for (const AllReduceChoice choice : {AllReduceChoice::peer, AllReduceChoice::nccl}) {
    expect_same_logits("", DType::bf16, 2e-3, choice);
    expect_same_logits(source_path("tests/golden/mixtral.gguf"), DType::bf16, 2e-3, choice);
    for (const char* type : {"bf16", "q8_0", "q4_0", "f16", "mxfp4"})
      expect_same_logits(std::string("synthetic:llama-272m:") + type, DType::bf16, 2e-3, choice);
  }
}

TEST_F(CudaRanks, AnEngineOfTwoAnswersAsOneDoes) {
  const auto answers = [](int32_t ranks, bool graphs) {
    EngineOptions options = gpu_options(ranks, DType::f32);
    options.cuda_graphs = graphs;
    return test::rank_answers(options);
  };
  const test::Answers alone = answers(1, true);
  for (const bool graphs : {true, false}) {
    const test::Answers ranks = answers(2, graphs);
    for (const auto& [id, answer] : alone.all())
      EXPECT_EQ(ranks.at(id).tokens, answer.tokens) << id << (graphs ? " with graphs" : "");
  }
}

/// Keeps the times of steps on each rank.
class ToldRanks final : public StepSink {
 public:
  void consume(const StepRecord&) noexcept override {}
  void consume_rank_step(const RankStep& step) noexcept override { steps.push_back(step); }
  std::vector<RankStep> steps;
};

TEST_F(CudaRanks, EachTellsItsHostsWorkAndItsIdleTime) {
  Engine engine(open_model(""), gpu_options(2, DType::bf16));
  ToldRanks told;
  engine.recorder().add_sink(told);
  test::answer_of(engine, test::greedy_request("a", engine.tokenizer().encode("Once upon a time"), 60));
  engine.recorder().remove_sink(told);
  int64_t of_second = 0;
  for (const RankStep& step : told.steps) {
    of_second += step.rank == 1;
    EXPECT_GT(step.launch_ns, 0);
    EXPECT_GE(step.host_ns, step.launch_ns);
    EXPECT_GE(step.idle_ns, 0);
    std::printf("step %ld, rank %d: host %.1f us, launch %.1f us, idle %.1f us\n",
                static_cast<long>(step.step), step.rank, us_of(step.host_ns), us_of(step.launch_ns),
                us_of(step.idle_ns));
  }
  EXPECT_GE(of_second, 59);
}

TEST_F(CudaRanks, EachIsTracedKernelByKernel) {
  for (const bool graphs : {true, false}) {
    SCOPED_TRACE(graphs ? "graphs" : "no graphs");
    EngineOptions options = gpu_options(2, DType::bf16);
    options.cuda_graphs = graphs;
    Engine engine(open_model(""), options);
    std::optional<RangeTrace> trace;
    engine.set_profile_range(
        {.first_step = 10, .last_step = 29, .on_trace = [&](RangeTrace range) { trace = std::move(range); }});
    test::answer_of(engine, test::greedy_request("a", engine.tokenizer().encode("Once upon a time"), 60));
    ASSERT_TRUE(trace.has_value());
    ASSERT_EQ(trace->error, "");
    std::vector<RangeTrace> ranges = by_rank(std::move(*trace));
    ASSERT_EQ(ranges.size(), 2u);
    for (int32_t rank = 0; rank < 2; ++rank) {
      const RangeAnalysis analysis(std::move(ranges[static_cast<size_t>(rank)]), engine.ops());
      const RangeLine& line = analysis.line();
      std::printf(
          "rank %d: %ld kernels, %ld unmatched, %ld missing, %ld outside, busy %.0f us, idle %.0f us\n", rank,
          static_cast<long>(line.kernels), static_cast<long>(line.unmatched), static_cast<long>(line.missing),
          static_cast<long>(line.outside), line.busy_us, line.idle_us);
      EXPECT_EQ(line.rank, rank);
      EXPECT_EQ(line.first_step, 10);
      EXPECT_EQ(line.steps, 20);
      EXPECT_GT(line.kernels, 20 * 10);
      EXPECT_EQ(line.missing, 0);
      EXPECT_EQ(line.unmatched, 0);
      EXPECT_EQ(line.outside, 0);
      EXPECT_GT(line.busy_us, 0.0);
      analysis.for_each_kernel([&](const KernelLine& kernel) {
        // The table of launches is the first rank's. It receives columns of logits where the others send them.
        const bool is_of_op = kernel.kind == ActivityKind::kernel && !kernel.op.empty();
        const bool is_of_others = kernel.kernel.find("gather_other") != std::string::npos;
        EXPECT_TRUE(!is_of_op || is_of_others || kernel.launch >= 0) << kernel.kernel;
      });
    }
  }
}

TEST_F(CudaRanks, ARankThatFailsEndsTheEngine) {
  EngineOptions options = gpu_options(2, DType::f32);
  options.on_rank_step = [](Rank rank, int64_t step) {
    if (step == 9) fail("rank {} was made to fail", rank.index);
  };
  Engine engine(open_model(""), options);
  EXPECT_THAT(failure_of(engine), HasSubstr("rank 1 was made to fail"));
}

TEST_F(CudaRanks, ARankThatHangsEndsTheEngineAfterItsTime) {
  std::promise<void> go_on;
  EngineOptions options = gpu_options(2, DType::f32);
  options.rank_timeout_s = 1;
  options.on_rank_step = [hung = go_on.get_future().share()](Rank, int64_t step) {
    if (step == 9) hung.wait();
  };
  {
    Engine engine(open_model(""), options);
    EXPECT_THAT(failure_of(engine), HasSubstr("waited"));
    go_on.set_value();
  }
}

TEST(CudaRanksRefused, WithoutEnoughDevices) {
  const auto count = static_cast<int32_t>(cuda_devices().size());
  if (count == 0 || count > 7) GTEST_SKIP() << count << " CUDA devices";
  EngineOptions options = gpu_options(8, DType::f32);
  try {
    Engine engine(open_model("synthetic:tiny:bf16"), options);
    ADD_FAILURE() << "8 GPUs";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("8"));
  }
}

}  // namespace
}  // namespace minfer
