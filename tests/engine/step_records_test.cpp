// The engine's records of its steps.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <numeric>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "tests/support/engine/engine_run.h"
#include "tests/support/last_steps.h"
#include "tests/support/paths.h"

namespace minfer {
namespace {

using test::Answers;
using test::greedy_request;

EngineOptions recorded_options() {
  EngineOptions options;
  options.max_model_len = 256;
  options.num_blocks = 128;
  options.threads = 1;
  return options;
}

std::vector<StepRecord> all_records(Engine& engine) {
  return test::last_steps(engine.recorder(), engine.recorder().capacity());
}

int64_t device_ns(const StepRecord& record) {
  return record.stamps.end_ns - record.stamps.ops.front().begin_ns;
}

TEST(StepRecordsTest, SpansAndOpsCoverTheWallTime) {
  Engine engine(open_model(""), recorded_options());
  const std::vector<TokenId> prompt = engine.tokenizer().encode("Once upon a time there was a little dog");
  for (int i = 0; i < 4; ++i)
    engine.submit(greedy_request(std::to_string(i), prompt, 60));
  Answers().run(engine);
  std::vector<double> shares;
  for (const StepRecord& record : all_records(engine)) {
    const int64_t spans_ns = std::accumulate(record.host_ns.begin(), record.host_ns.end(), int64_t{0});
    EXPECT_LE(spans_ns + device_ns(record), record.wall_ns()) << "step " << record.step;
    shares.push_back(static_cast<double>(spans_ns + device_ns(record)) /
                     static_cast<double>(record.wall_ns()));
  }
  // For the median step: an interruption falls between two of its spans only now and then.
  std::ranges::nth_element(shares, shares.begin() + std::ssize(shares) / 2);
  const double share = shares[shares.size() / 2];
  std::printf("host spans and ops cover %.2f %% of the median step's wall time\n", 100.0 * share);
  EXPECT_GE(share, 0.95);
}

TEST(StepRecordsTest, OpsStandInTheOrderOfTheTableAndOfTime) {
  Engine engine(open_model(""), recorded_options());
  engine.submit(greedy_request("a", {1, 300, 301}, 5));
  Answers().run(engine);
  for (const StepRecord& record : all_records(engine)) {
    const auto& ops = record.stamps.ops;
    ASSERT_FALSE(ops.empty());
    for (size_t i = 1; i < ops.size(); ++i) {
      EXPECT_LT(ops[i - 1].op, ops[i].op);
      EXPECT_LE(ops[i - 1].begin_ns, ops[i].begin_ns);
    }
    EXPECT_GE(ops.front().begin_ns, record.start_ns);
    EXPECT_LE(record.stamps.end_ns, record.end_ns);
    EXPECT_EQ(engine.ops()[static_cast<size_t>(ops.back().op)].kind, OpKind::sample) << "a token was drawn";
  }
}

/// The same for every family: each op that its layers run has its own entry, and the backend is told to have room for all.
TEST(StepRecordsTest, EveryFamilyRunsOpsOfItsTableInOrder) {
  int families = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("tests/golden"))) {
    if (entry.path().extension() != ".gguf") continue;
    EngineOptions options = recorded_options();
    options.max_model_len = 32;
    Engine engine(open_model(entry.path().string()), options);
    engine.submit(greedy_request("a", {1, 3, 5}, 3));
    Answers().run(engine);
    for (const StepRecord& record : all_records(engine)) {
      std::vector<OpId> ops;
      for (const StepStamps::Stamp& stamp : record.stamps.ops)
        ops.push_back(stamp.op);
      EXPECT_EQ(std::ranges::adjacent_find(ops, std::ranges::greater_equal()), ops.end()) << entry.path();
    }
    ++families;
  }
  EXPECT_GE(families, 30);
}

TEST(StepRecordsTest, PhasesAndShapesOfSteps) {
  EngineOptions options = recorded_options();
  options.max_num_batched_tokens = 16;
  options.num_blocks = 16;
  Engine engine(open_model("synthetic:tiny:f32"), options);
  std::vector<TokenId> prompt(20);
  std::iota(prompt.begin(), prompt.end(), 300);
  engine.submit(greedy_request("a", prompt, 4));
  engine.step();  // 16 tokens of a
  engine.step();  // its other 4, and the first token
  engine.step();  // decodes
  prompt.resize(10);
  engine.submit(greedy_request("b", prompt, 1));
  engine.step();  // a decodes beside b's prompt
  const std::vector<StepRecord> records = all_records(engine);
  ASSERT_EQ(records.size(), 4u);
  const StepPhase phases[] = {StepPhase::prefill, StepPhase::prefill, StepPhase::decode, StepPhase::mixed};
  const int32_t prefill_tokens[] = {16, 4, 0, 10}, decode_tokens[] = {0, 0, 1, 1}, rows[] = {0, 1, 1, 2};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(records[i].step, static_cast<int64_t>(i));
    EXPECT_EQ(records[i].batch.phase(), phases[i]) << i;
    EXPECT_EQ(records[i].batch.shape.prefill_tokens, prefill_tokens[i]) << i;
    EXPECT_EQ(records[i].batch.shape.decode_tokens, decode_tokens[i]) << i;
    EXPECT_EQ(records[i].batch.shape.logit_rows(), rows[i]) << i;
    EXPECT_EQ(records[i].batch.kv_blocks_total, 16);
  }
  EXPECT_EQ(records[0].batch.kv_blocks_used, 1);
  EXPECT_EQ(records[3].batch.kv_blocks_used, 3);
}

TEST(StepRecordsTest, StepsWithNothingToDoAreNotRecorded) {
  Engine engine(open_model("synthetic:tiny:f32"), recorded_options());
  engine.step();
  engine.submit(greedy_request("refused", {}, 4));
  engine.step();
  EXPECT_TRUE(all_records(engine).empty());
  engine.submit(greedy_request("a", {300}, 2));
  Answers().run(engine);
  EXPECT_EQ(all_records(engine).back().step, 1);
}

TEST(StepRecordsTest, PrefixHitsAndWaitingRequestsAreCounted) {
  EngineOptions options = recorded_options();
  options.max_num_seqs = 1;
  Engine engine(open_model("synthetic:tiny:f32"), options);
  const std::vector<TokenId> prompt(40, 300);
  for (const char* id : {"a", "b", "c"})
    engine.submit(greedy_request(id, prompt, 1));
  Answers().run(engine);
  const std::vector<StepRecord> records = all_records(engine);
  ASSERT_EQ(records.size(), 3u);
  const int32_t waiting[] = {2, 1, 0}, hits[] = {0, 32, 32};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(records[i].batch.waiting, waiting[i]);
    EXPECT_EQ(records[i].batch.prefix_hit_tokens, hits[i]);
  }
}

}  // namespace
}  // namespace minfer
