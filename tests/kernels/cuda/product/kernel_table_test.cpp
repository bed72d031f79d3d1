#include "kernels/tuning/kernel_table.h"

#include <gmock/gmock.h>

#include "kernels/error.h"
#include "tests/support/refusal.h"

namespace minfer::cuda {
namespace {

using testing::HasSubstr;

const PlanDevice kMeasured{.name = "NVIDIA H200", .major = 9, .minor = 0, .multiprocessors = 132};
const ProductShape kWide{.type = DType::bf16, .op = ProductOp::gate_up, .rows = 14336, .cols = 4096};

ProductPlan plan_of(std::string_view text) {
  return product_plan_from(text).value();
}

std::string table_of(const std::string& lines) {
  return "format 1\ndevice sm_90 132 NVIDIA H200\n" + lines;
}

std::string error_of(const std::string& text) {
  return test::refusal_of<FileError>([&] { KernelTable::parse(text, "table.txt"); });
}

TEST(TokenRange, StandsForTheTileAndNotForWhatIsMeasured) {
  const auto range = [](int64_t tokens, int64_t below) {
    const TokenRange found = token_range(tokens, below);
    return std::pair(found.first, found.last);
  };
  EXPECT_EQ(range(1, 0), std::pair(int64_t{1}, int64_t{1}));
  EXPECT_EQ(range(2, 1), std::pair(int64_t{2}, int64_t{2}));
  EXPECT_EQ(range(64, 32), std::pair(int64_t{33}, int64_t{64}));
  EXPECT_EQ(range(64, 0), std::pair(int64_t{33}, int64_t{64}));
  EXPECT_EQ(range(64, 50), std::pair(int64_t{51}, int64_t{64}));
  EXPECT_EQ(range(48, 0), std::pair(int64_t{33}, int64_t{48}));
}

TEST(KernelTable, HasTypesThatNoFileHas) {
  for (const char* type : {"fp8", "lut4"})
    EXPECT_EQ(error_of(table_of(fmt::format("{} linear 16 256 1-1 tile_vector 1 automatic 2 2\n", type))),
              "");
}

TEST(ChoosePlan, TakesTheFastestIfItIsFasterThanTheRules) {
  const MeasuredPlan measured[] = {
      {{}, 60.0}, {plan_of("stream:64x128/rounds"), 58.0}, {plan_of("cublaslt"), 80.0}};
  KernelTableLine line = choose_plan(kWide, {33, 64}, measured);
  EXPECT_EQ(to_string(line.plan), "stream:64x128/rounds");
  EXPECT_EQ(line.us, 58.0);
  EXPECT_EQ(to_string(line.next), "automatic");
  EXPECT_EQ(line.next_us, 60.0);
  EXPECT_EQ(line.automatic_us, 60.0);

  const MeasuredPlan alike[] = {{plan_of("stream:64x128/rounds"), 59.0}, {{}, 60.0}};
  line = choose_plan(kWide, {33, 64}, alike);
  EXPECT_EQ(to_string(line.plan), "automatic") << "2 % are noise";
  EXPECT_EQ(to_string(line.next), "stream:64x128/rounds");
}

TEST(ChoosePlan, NeedsTheRulesAndAnother) {
  const MeasuredPlan measured[] = {{{}, 60.0}, {plan_of("cublaslt"), 80.0}};
  EXPECT_THROW(choose_plan(kWide, {1, 1}, std::span(measured).first(1)), Error);
  EXPECT_THROW(choose_plan(kWide, {1, 1}, std::span(measured).last(1)), Error);
}

TEST(ClosePlans, AreTheFastAndTheRules) {
  const MeasuredPlan measured[] = {{{}, 90.0},
                                   {plan_of("stream:64x128/rounds"), 58.0},
                                   {plan_of("cublaslt"), 60.0},
                                   {plan_of("panel"), 70.0}};
  const std::vector<ProductPlan> close = close_plans(measured, 1.15);
  ASSERT_EQ(close.size(), 3u);
  EXPECT_EQ(to_string(close[0]), "automatic");
  EXPECT_EQ(to_string(close[2]), "cublaslt");
  EXPECT_TRUE(close_plans({}, 2.0).empty());
}

TEST(KernelTable, ReadsWhatItWrites) {
  std::vector<KernelTableLine> lines;
  const ProductShape down{.type = DType::q4_k, .op = ProductOp::linear_add, .rows = 4096, .cols = 14336};
  for (const int64_t tokens : {1, 2, 4, 64}) {
    const MeasuredPlan measured[] = {{{}, 20.0},
                                     {plan_of(tokens == 1 ? "tile_vector" : "tile_stream:64x64/2"), 10.5}};
    lines.push_back(choose_plan(down, token_range(tokens, tokens / 2), measured));
  }
  const KernelTable table(kMeasured, lines);
  const KernelTable again = KernelTable::parse(table.text(), "again");
  EXPECT_EQ(again.text(), table.text());
  EXPECT_EQ(again.device(), kMeasured);
  ASSERT_EQ(again.lines().size(), 4u);
  EXPECT_EQ(again.lines()[3].shape, down);
  EXPECT_EQ(again.lines()[3].us, 10.5);
  EXPECT_EQ(again.lines()[3].automatic_us, 20.0);
  EXPECT_EQ(KernelTable::parse(KernelTable(kMeasured, {}).text(), "empty").lines().size(), 0u);
}

TEST(KernelTable, FindsThePlanOfARange) {
  const KernelTable table =
      KernelTable::parse(table_of("bf16 gate_up 14336 4096 9-16 cublaslt 1 automatic 2 2 # a comment\r\n"
                                  "\n"
                                  "\tbf16  gate_up 14336 4096 33-64 stream:64x128/rounds 1 automatic 2 2\n"
                                  "bf16 gate_up 14336 4096 65-128 automatic 1 cublaslt 2 1"),
                         "table.txt");
  const auto found = [&](int64_t tokens, const ProductShape& shape = kWide) {
    const ProductPlan* plan = table.find(shape, tokens);
    return plan == nullptr ? std::string("none") : to_string(*plan);
  };
  EXPECT_EQ(found(8), "none");
  EXPECT_EQ(found(9), "cublaslt");
  EXPECT_EQ(found(16), "cublaslt");
  EXPECT_EQ(found(17), "none");
  EXPECT_EQ(found(33), "stream:64x128/rounds");
  EXPECT_EQ(found(64), "stream:64x128/rounds");
  EXPECT_EQ(found(100), "none") << "automatic";
  EXPECT_EQ(found(129), "none");
  ProductShape other = kWide;
  other.op = ProductOp::linear;
  EXPECT_EQ(found(64, other), "none");
  other = kWide;
  other.rows += 8;
  EXPECT_EQ(found(64, other), "none");
}

TEST(KernelTable, IsForOneDevice) {
  const KernelTable table(kMeasured, {});
  table.check_device(kMeasured);
  PlanDevice part = kMeasured;
  part.multiprocessors = 16;
  try {
    table.check_device(part);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("measured on NVIDIA H200 (sm_90, 132 multiprocessors), this device is NVIDIA "
                          "H200 (sm_90, 16 multiprocessors)"));
  }
}

TEST(KernelTable, SaysWhatIsWrongWithAFile) {
  const std::string product = "bf16 gate_up 14336 4096 33-64 stream:64x128/line 1.5 automatic 2 2\n";
  EXPECT_EQ(error_of(table_of(product)), "");
  EXPECT_THAT(error_of(""), HasSubstr("table.txt: line 1: expected \"format 1\", found the end of the file"));
  EXPECT_THAT(error_of("\n# nothing\n"), HasSubstr("line 3: expected \"format 1\""));
  EXPECT_THAT(error_of("format 1\n"), HasSubstr("line 2: expected \"device"));
  EXPECT_THAT(error_of("GGUF\x03\x01"), HasSubstr("line 1: expected format, found \"GGUF"));
  EXPECT_THAT(error_of("format 2\n"),
              HasSubstr("line 1: expected the version of this format (a number from 1 to 1), found \"2\""));
  EXPECT_THAT(error_of("format 1 2\n"), HasSubstr("expected the end of the line, found \"2\""));
  EXPECT_THAT(error_of("format 1\ndevice 90 132 NVIDIA H200\n"), HasSubstr("line 2: expected sm_ and"));
  EXPECT_THAT(error_of("format 1\ndevice sm_9O 132 NVIDIA H200\n"), HasSubstr("found \"sm_9O\""));
  EXPECT_THAT(error_of("format 1\ndevice sm_90 0 NVIDIA H200\n"),
              HasSubstr("multiprocessors (a number from 1"));
  EXPECT_THAT(error_of("format 1\ndevice sm_90 132\n"),
              HasSubstr("expected the device's name, found the end of the line"));
  const auto refused = [&](const std::string& line, const std::string& expected) {
    EXPECT_THAT(error_of(table_of("\n" + line)),
                testing::AllOf(HasSubstr("table.txt: line 4: "), HasSubstr(expected)));
  };
  refused("bf17 gate_up 1 1 1-1", "a type of weights (e.g. bf16 or q4_k), found \"bf17\"");
  refused("bf16 gate 1 1 1-1", "linear, linear_add or gate_up, found \"gate\"");
  refused("bf16 linear 0 1 1-1", "rows (a number from 1 to 1073741824), found \"0\"");
  refused("bf16 linear 1 -1 1-1", "columns");
  refused("bf16 linear 1 99999999999999999999 1-1", "columns");
  for (const char* tokens : {"1", "0-1", "2-1", "1-2-3", "-", "1-", "1-9999999", "a-b"})
    refused(fmt::format("bf16 linear 8 8 {} cublaslt 1 automatic 1 1", tokens), "tokens (FIRST-LAST");
  for (const char* plan :
       {"magic", "stream", "cublaslt:8x64/line", "stream:8x64", "stream:8x64/", "stream:8x65/line",
        "stream:8x64/1", "stream:8x64/2x", "stream:8x64/lines", "stream:-8x64/line", ":", "stream:"})
    refused(fmt::format("bf16 linear 8 8 1-1 {} 1 automatic 1 1", plan), "the plan (a kernel");
  for (const char* us : {"nan", "inf", "-1", "1e99", "x", "1,5"})
    refused(fmt::format("bf16 linear 8 8 1-1 cublaslt {} automatic 1 1", us), "(microseconds)");
  refused("bf16 linear 8 8 1-1 cublaslt 1", "the runner-up");
  refused("bf16 linear 8 8 1-1 cublaslt 1 automatic 1 1 1", "the end of the line, found \"1\"");
  // What is well written and cannot be.
  refused("q4_k linear 8 256 1-1 cublaslt 1 automatic 1 1", "cublaslt: cublaslt is for bf16");
  refused("bf16 linear 64 256 1-16 stream:8x64/2 1 automatic 1 1", "splits with 16 tokens");
  EXPECT_THAT(error_of(table_of(product + product)),
              HasSubstr("table.txt: line 4: tokens 33-64, expected none of the same product's 33-64"));
  EXPECT_THAT(error_of(table_of("bf16 linear 8 8 1-4 cublaslt 1 automatic 1 1\n"
                                "bf16 linear 8 8 4-8 cublaslt 1 automatic 1 1")),
              HasSubstr("table.txt: line 4: tokens 4-8, expected none of the same product's 1-4"));
  EXPECT_THAT(error_of(std::string(5 << 20, ' ')), HasSubstr("bytes, expected at most"));
}

}  // namespace
}  // namespace minfer::cuda
