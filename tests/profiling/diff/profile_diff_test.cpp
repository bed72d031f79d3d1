#include "profiling/diff/profile_diff.h"

#include <cmath>
#include <functional>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "profiling/text/table.h"
#include "tests/support/profiling/sample_profile.h"

namespace minfer {
namespace {

/// 30 decode steps of four tokens: qkv takes about 100 us and attention about 40, with a spread of 1 %.
std::vector<StepSummary> decode_steps(double qkv_us = 100.0, int32_t tokens = 4) {
  std::vector<StepSummary> steps;
  for (int64_t number = 0; number < 30; ++number) {
    const double spread = 1.0 + 0.01 * std::sin(static_cast<double>(number));
    StepSummary& step = steps.emplace_back();
    step.step = number;
    step.batch.shape.decode_tokens = step.batch.shape.decode_sequences = tokens;
    step.ops.push_back({.op = "qkv", .calls = 2, .us = qkv_us * spread, .bytes = 1'000'000, .launches = {0}});
    step.ops.push_back({.op = "attention_decode", .calls = 2, .us = 40.0 * spread, .launches = {}});
    step.gpu_us = step.ops[0].us + step.ops[1].us;
    step.wall_us = step.gpu_us + 10.0;
  }
  return steps;
}

DiffSums diff_sums(const std::vector<StepSummary>& steps,
                   const std::function<void(ProfileHeader&, KernelLaunch&)>& change = {}) {
  ProfileHeader header = test::sample_header();
  KernelLaunch launch{.kernel = "row_product", .path = {}};
  if (change) change(header, launch);
  DiffSums sums;
  sums.header(header);
  sums.launch(launch);
  for (StepSummary step : steps)
    sums.step(step);
  return sums;
}

std::string table_of(const ProfileDiff& diff) {
  return render_diff(diff, {.a = "a.jsonl", .b = "b.jsonl"}, DiffFormat::table);
}

TEST(ProfileDiff, OfAFileWithItselfIsNothing) {
  const DiffSums sums = diff_sums(decode_steps());
  const ProfileDiff diff = diff_of(sums, sums);
  EXPECT_EQ(diff.step.token_change_us(), 0.0);
  EXPECT_FALSE(diff.step.is_certain());
  EXPECT_TRUE(diff.settings.empty());
  EXPECT_TRUE(diff.left_out_a.empty() && diff.left_out_b.empty());
  for (const OpDiff& op : diff.ops) {
    EXPECT_EQ(op.state, OpDiff::State::both) << op.op;
    EXPECT_EQ(op.time.token_change_us(), 0.0) << op.op;
    EXPECT_TRUE(op.a_kernels.empty() && op.b_kernels.empty());
  }
  EXPECT_NE(table_of(diff).find("no difference beyond noise"), std::string::npos);
}

TEST(ProfileDiff, NamesTheSlowerOpFirst) {
  const ProfileDiff diff = diff_of(diff_sums(decode_steps()), diff_sums(decode_steps(130.0)));
  EXPECT_NEAR(diff.step.b_us - diff.step.a_us, 30.0, 0.2);
  EXPECT_NEAR(diff.step.change(), 30.0 / 150.0, 0.002);
  EXPECT_TRUE(diff.step.is_certain());
  EXPECT_EQ(diff.ops.front().op, "qkv");
  EXPECT_TRUE(diff.ops.front().time.is_certain());
  EXPECT_FALSE(diff.ops.back().time.is_certain());
  double sum = 0.0;
  for (const OpDiff& op : diff.ops)
    sum += op.time.token_change_us();
  EXPECT_NEAR(sum, diff.step.token_change_us(), 1e-9) << "ops and the rest add up to the difference";
  const std::string text = table_of(diff);
  EXPECT_NE(text.find("B is slower by 20.0"), std::string::npos) << text;
  EXPECT_NE(text.find("most of it: qkv (decode), 100 % of the difference"), std::string::npos) << text;
}

// Welch's formula by hand: two kinds of equal weight would need more, one kind does not.
TEST(ProfileDiff, MarginComesFromTheSpread) {
  std::vector<StepSummary> a = decode_steps(), b = decode_steps();
  for (size_t i = 0; i < a.size(); ++i) {
    a[i].wall_us = i % 2 == 0 ? 90.0 : 110.0;
    b[i].wall_us = i % 2 == 0 ? 93.0 : 113.0;
  }
  const DiffTime time = diff_of(diff_sums(a), diff_sums(b)).step;
  const double variance = 100.0 * 30 / 29;
  EXPECT_NEAR(time.margin_us * 4, t_quantile(58) * std::sqrt(2 * variance / 30), 1e-6);
  EXPECT_FALSE(time.is_certain()) << "3 us of 100, give or take 5";
  EXPECT_NE(table_of(diff_of(diff_sums(a), diff_sums(b))).find("noise"), std::string::npos);
  a.resize(1);
  EXPECT_LT(diff_of(diff_sums(a), diff_sums(b)).step.margin_us, 0.0) << "one step has no spread";
}

TEST(ProfileDiff, AKindOfOneStepSaysNothingOfTheSpreadOfOpsThatItDoesNotRun) {
  const auto with_a_prompt = [](std::vector<StepSummary> steps) {
    StepSummary prompt;
    prompt.batch.shape.prefill_tokens = 100;
    prompt.batch.shape.prefill_sequences = 1;
    prompt.ops.push_back({.op = "qkv", .phase = StepPhase::prefill, .calls = 2, .us = 500.0, .launches = {}});
    prompt.wall_us = prompt.gpu_us = 500.0;
    steps.push_back(prompt);
    return steps;
  };
  const ProfileDiff diff =
      diff_of(diff_sums(with_a_prompt(decode_steps())), diff_sums(with_a_prompt(decode_steps(130.0))));
  EXPECT_LT(diff.step.margin_us, 0.0);
  EXPECT_EQ(diff.ops.front().op, "qkv");
  EXPECT_EQ(diff.ops.front().phase, StepPhase::decode);
  EXPECT_TRUE(diff.ops.front().time.is_certain());
}

TEST(ProfileDiff, StudentsT) {
  EXPECT_NEAR(t_quantile(3), 3.182, 0.05);
  EXPECT_NEAR(t_quantile(10), 2.228, 0.003);
  EXPECT_NEAR(t_quantile(100), 1.984, 0.001);
  EXPECT_NEAR(t_quantile(1), 12.706, 0.001);
}

TEST(ProfileDiff, SeesOpsThatCameWentAndWereRenamed) {
  std::vector<StepSummary> steps = decode_steps();
  for (StepSummary& step : steps) {
    step.ops[0].op = "qkv_fused";
    step.ops[1].op = "flash";
  }
  const auto rename = [](ProfileHeader& header, KernelLaunch&) {
    for (OpInfo& op : header.ops)
      if (op.name == "qkv") op.name = "qkv_fused";
  };
  const ProfileDiff diff = diff_of(diff_sums(decode_steps()), diff_sums(steps, rename));
  const auto state = [&](const std::string& op) {
    const auto found = std::ranges::find(diff.ops, op, &OpDiff::op);
    return found == diff.ops.end()                  ? std::string("absent")
           : found->state == OpDiff::State::added   ? "added"
           : found->state == OpDiff::State::removed ? "removed"
                                                    : "both " + found->renamed_to;
  };
  EXPECT_EQ(state("qkv"), "both qkv_fused");
  EXPECT_EQ(state("qkv_fused"), "absent");
  EXPECT_EQ(state("attention_decode"), "removed");
  EXPECT_EQ(state("flash"), "added");
}

TEST(ProfileDiff, ComparesStepsOfOneKindAlone) {
  std::vector<StepSummary> both = decode_steps();
  const std::vector<StepSummary> large = decode_steps(50.0, 64);
  both.insert(both.end(), large.begin(), large.end());
  const ProfileDiff diff = diff_of(diff_sums(both), diff_sums(decode_steps()));
  EXPECT_EQ(diff.step.token_change_us(), 0.0) << "the large batch is left out";
  ASSERT_EQ(diff.left_out_a.size(), 1u);
  EXPECT_EQ(diff.left_out_a[0].second, 30);
  EXPECT_NE(table_of(diff).find("left out: 30 steps of A alone: decode of 64 tokens (30)"),
            std::string::npos);
  // Graphs of one size are one kind, however many of their sequences are real.
  StepBatch batch;
  batch.shape.decode_tokens = 5;
  batch.padded_tokens = 3;
  EXPECT_EQ(kind_of(batch), (StepKind{StepPhase::decode, 8}));
  batch.shape.prefill_tokens = 100;
  EXPECT_EQ(kind_of(batch), (StepKind{StepPhase::mixed, 128}));
}

TEST(ProfileDiff, OfOtherBatchesComparesWholePhasesByToken) {
  const ProfileDiff diff = diff_of(diff_sums(decode_steps(100.0, 4)), diff_sums(decode_steps(100.0, 8)));
  EXPECT_TRUE(diff.by_phase);
  EXPECT_NEAR(diff.step.change(), -0.5, 1e-9);
  EXPECT_NE(table_of(diff).find("whole phases are compared"), std::string::npos);
  std::vector<StepSummary> mostly_four = decode_steps(100.0, 4), mostly_eight = decode_steps(100.0, 8);
  mostly_four.push_back(mostly_eight.front());
  EXPECT_TRUE(diff_of(diff_sums(mostly_four), diff_sums(mostly_eight)).by_phase) << "one step is not the run";
  std::vector<StepSummary> prefill = decode_steps();
  for (StepSummary& step : prefill)
    step.batch.shape = {.prefill_tokens = 4};
  EXPECT_THROW(diff_of(diff_sums(prefill), diff_sums(decode_steps())), Error);
}

TEST(ProfileDiff, SaysWhatElseDiffers) {
  const auto change = [](ProfileHeader& header, KernelLaunch& launch) {
    header.device = "Other Processor";
    header.options = {{"block_size", "32"}};
    launch.kernel = "block_product";
  };
  const ProfileDiff diff = diff_of(diff_sums(decode_steps()), diff_sums(decode_steps(), change));
  const std::string text = table_of(diff);
  EXPECT_NE(text.find("device: A Sample Processor, B Other Processor"), std::string::npos) << text;
  EXPECT_NE(text.find("block_size: A "), std::string::npos) << text;
  EXPECT_NE(text.find("qkv (decode): row_product 0x0 -> block_product 0x0"), std::string::npos) << text;
}

TEST(ProfileDiff, NamesKernelsWithGridBlockAndPath) {
  const auto with = [](const std::string& kernel, const std::string& path, std::array<int32_t, 3> grid,
                       std::array<int32_t, 3> block) {
    return [=](ProfileHeader&, KernelLaunch& launch) {
      launch = {.kernel = kernel, .path = path, .grid = grid, .block = block};
    };
  };
  const auto strip = with("strip_kernel<1>", "strip_product", {132, 1, 1}, {512, 1, 1});
  const auto lt = with("nvjet_64x2", "cublasLt", {64, 2, 1}, {32, 16, 1});
  const ProfileDiff diff = diff_of(diff_sums(decode_steps(), strip), diff_sums(decode_steps(), lt));
  const std::string text = table_of(diff);
  EXPECT_NE(text.find("qkv (decode): strip_product 132x1 -> cublasLt 64x2\n"
                      "  A: strip_product 132x1 blocks of 512x1 threads: strip_kernel<1>\n"
                      "  B: cublasLt 64x2 blocks of 32x16 threads: nvjet_64x2\n"),
            std::string::npos)
      << text;
  const nlohmann::json json =
      nlohmann::json::parse(render_diff(diff, {.a = "a", .b = "b"}, DiffFormat::json));
  const auto op = std::ranges::find_if(json["ops"], [](const auto& each) { return each["op"] == "qkv"; });
  EXPECT_EQ((*op)["a_launches"][0]["grid"], nlohmann::json::array({132, 1, 1}));
  EXPECT_EQ((*op)["b_launches"][0]["steps"], 30);
  EXPECT_NE(render_diff(diff, {.a = "a", .b = "b"}, DiffFormat::md)
                .find("- qkv (decode): strip_product 132x1 -> cublasLt 64x2\n  - A: "),
            std::string::npos);

  // The same kernel in another grid: reported only for steps of one batch.
  const auto wider = with("strip_kernel<1>", "strip_product", {264, 1, 1}, {512, 1, 1});
  const ProfileDiff grids = diff_of(diff_sums(decode_steps(), strip), diff_sums(decode_steps(), wider));
  EXPECT_NE(table_of(grids).find("qkv (decode): strip_product 132x1 -> strip_product 264x1"),
            std::string::npos);
  EXPECT_TRUE(grids.ops[0].a_kernels.empty());
  const ProfileDiff batches =
      diff_of(diff_sums(decode_steps(100.0, 4), strip), diff_sums(decode_steps(100.0, 8), wider));
  EXPECT_EQ(table_of(batches).find("Kernels that differ"), std::string::npos);
  EXPECT_EQ(
      table_of(diff_of(diff_sums(decode_steps(), strip), diff_sums(decode_steps(), strip))).find("Kernels"),
      std::string::npos);
}

TEST(ProfileDiff, ListsBatchShapesWithTheirShareOfSteps) {
  std::vector<StepSummary> mostly_small = decode_steps(100.0, 4);  // 60 steps of 4, 30 of 64
  for (const auto& more : {decode_steps(100.0, 4), decode_steps(100.0, 64)})
    mostly_small.insert(mostly_small.end(), more.begin(), more.end());
  std::vector<StepSummary> mostly_large = decode_steps(100.0, 64);  // 30 steps of 64, 30 of 8, and 30 of 4
  for (const auto& more : {decode_steps(100.0, 8), decode_steps(100.0, 4)})
    mostly_large.insert(mostly_large.end(), more.begin(), more.end());
  const ProfileDiff diff = diff_of(diff_sums(mostly_small), diff_sums(mostly_large));
  ASSERT_EQ(diff.shapes.size(), 2u) << "64 tokens have a third of both";
  EXPECT_DOUBLE_EQ(diff.shapes[0].change(), diff.shapes[0].kind.tokens == 4 ? -1.0 / 3.0 : 1.0 / 3.0);
  const std::string text = table_of(diff);
  EXPECT_NE(text.find("decode of 4 tokens      60 66.7      30 33.3"), std::string::npos) << text;
  EXPECT_NE(text.find("decode of 8 tokens       0  0.0      30 33.3"), std::string::npos) << text;
  EXPECT_EQ(text.find("decode of 64 tokens    "), std::string::npos) << text;
  EXPECT_EQ(table_of(diff_of(diff_sums(mostly_small), diff_sums(mostly_small))).find("Batch shapes"),
            std::string::npos);
}

TEST(ProfileDiff, EveryFormat) {
  const ProfileDiff diff = diff_of(diff_sums(decode_steps()), diff_sums(decode_steps(130.0)));
  const DiffNames names{.a = "a.jsonl", .b = "b.jsonl"};
  const nlohmann::json json = nlohmann::json::parse(render_diff(diff, names, DiffFormat::json));
  EXPECT_EQ(json["schema"], "minfer.diff/1");
  EXPECT_EQ(json["ops"][0]["op"], "qkv");
  EXPECT_EQ(json["ops"][0]["verdict"], "slower");
  EXPECT_NEAR(json["step"]["change"].get<double>(), 0.2, 0.002);
  EXPECT_NE(render_diff(diff, names, DiffFormat::md).find("| qkv (decode) |"), std::string::npos);
  std::istringstream lines(table_of(diff));
  for (std::string line; std::getline(lines, line);)
    EXPECT_LE(display_width(line), 80u) << line;
}

}  // namespace
}  // namespace minfer
