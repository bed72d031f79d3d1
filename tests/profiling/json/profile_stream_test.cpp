#include <sstream>

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "profiling/json/json_reader.h"
#include "profiling/json/lines.h"
#include "profiling/json/parsed_lines.h"
#include "profiling/report/report_data.h"
#include "tests/support/profiling/sample_profile.h"
#include "tests/support/profiling/traced_steps.h"
#include "tests/support/profiling/whole_profile.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

/// Records the order in which it gets lines.
class LineOrder final : public ProfileVisitor {
 public:
  void header(ProfileHeader) override { order += 'h'; }
  void launch(KernelLaunch) override { order += 'l'; }
  void step(StepSummary& step) override { order += static_cast<char>('0' + step.step % 10); }
  void range(RangeLine) override { order += 'r'; }
  void traced_step(const StepKernels&) override { order += 't'; }
  void kernel(KernelLine) override { order += 'k'; }
  void counters(CounterWindow) override { order += 'c'; }
  void memory(MemoryUse) override { order += 'm'; }
  std::string order;
};

std::string order_without(std::string order, char left_out) {
  std::erase(order, left_out);
  return order;
}

TEST(ProfileStream, HandsOverLineAfterLine) {
  test::TemporaryDirectory directory;
  const auto path = directory.path() / "run.jsonl";
  LaunchTable launches;
  {
    ProfileWriter writer(path, test::whole_profile_header(launches));
    test::write_whole_profile(writer, 3);
    writer.close();
  }
  LineOrder lines;
  EXPECT_EQ(read_profile(path, lines), "");
  EXPECT_EQ(order_without(order_without(lines.order, 'k'), 'l'), "h012rtttcm");
}

std::string many_steps(int64_t count) {
  std::string text;
  append_header_line(text, test::sample_header());
  std::vector<StepSummary> steps = test::sample_steps(3);
  for (int64_t number = 0; number < count; ++number) {
    StepSummary& step = steps[static_cast<size_t>(number % 3)];
    step.step = number;
    append_line(text, step);
  }
  return text;
}

/// The bytes that the sums of that many steps take.
size_t bytes_of_sums(int64_t count) {
  std::istringstream stream(many_steps(count));
  ReportSums sums({}, 5);
  read_profile(stream, "run.jsonl", sums);
  return sums.bytes();
}

// Except for the recent steps, whose number is limited.
TEST(ProfileStream, SumsDoNotGrowWithSteps) {
  const size_t of_few = bytes_of_sums(100), of_many = bytes_of_sums(2'100);
  EXPECT_LE(of_many - of_few, 2'000 * 64u);
  Aggregator sums;
  StepSummary step = test::sample_steps(1).front();
  size_t bytes = 0;
  for (int64_t number = 0; number < 300'000; ++number) {
    step.step = number;
    sums.add(step);
    if (number == static_cast<int64_t>(Aggregator::kRecentSteps)) bytes = sums.bytes();
  }
  EXPECT_EQ(sums.bytes(), bytes);
  EXPECT_EQ(sums.result().all.steps, 300'000);
}

TEST(ProfileStream, KernelsOfRecentStepsChangeWhatIsAttributed) {
  Aggregator sums;
  StepSummary step = test::sample_steps(1).front();
  step.wall_us = 100.0;
  step.attributed = 0.5;
  for (step.step = 0; step.step < 3; ++step.step)
    sums.add(step);
  sums.add(StepKernels{.step = 1, .kernels = 4, .attributed_us = 80.0});
  sums.add(StepKernels{.step = 7, .kernels = 4, .attributed_us = 80.0});
  sums.add(StepKernels{.step = 2, .kernels = 4, .missing = 1, .attributed_us = 80.0});
  const Aggregate result = sums.result();
  EXPECT_NEAR(result.attributed, (0.5 + 0.8 + 0.5) / 3, 1e-12);
  EXPECT_EQ(result.attributed_by.at("kernels"), 1);
}

// The reading thread ends in every case.
TEST(ProfileStream, WhatAVisitorThrowsReachesTheCaller) {
  class Refuser final : public ProfileVisitor {
    void step(StepSummary& step) override {
      if (step.step == 300) fail("enough");
    }
  } refuser;
  std::istringstream stream(many_steps(3'000));
  EXPECT_THROW(read_profile(stream, "run.jsonl", refuser), Error);
}

TEST(ProfileStream, WhatCameBeforeAnErrorWasHandedOver) {
  LineOrder lines;
  std::istringstream broken(many_steps(1'000) + "{}\n" + many_steps(1'000));
  try {
    read_profile(broken, "run.jsonl", lines);
    FAIL() << "it was read";
  } catch (const FileError& error) {
    EXPECT_EQ(std::string(error.what()), "run.jsonl:1002: has no field \"schema\"");
  }
  EXPECT_EQ(lines.order.size(), 1'001u);
  LineOrder others;
  std::istringstream long_line(many_steps(100) + std::string(9u << 20, ' '));
  EXPECT_THROW(read_profile(long_line, "run.jsonl", others), FileError);
  EXPECT_EQ(others.order.size(), 101u);
}

TEST(ProfileStream, HostileNumbersAndKeys) {
  const std::string text = many_steps(1);
  const auto refusal = [&](std::string_view from, std::string_view to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    std::istringstream stream(changed);
    try {
      return std::to_string(read_profile(stream, "run.jsonl").steps.size()) + " steps";
    } catch (const FileError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(refusal("\"step\":0", "\"step\":18446744073709551615"),
            "run.jsonl:2: step: expected an integer from 0 to 1000000000000, found 18446744073709551615");
  EXPECT_EQ(refusal("\"step\":0", "\"step\":99999999999999999999"), "run.jsonl:2: is no valid JSON");
  EXPECT_EQ(refusal("\"step\":0", "\"step\":1.5"),
            "run.jsonl:2: step: expected an integer from 0 to 1000000000000, found 1.5");
  EXPECT_EQ(refusal("\"step\":0", "\"step\":0,\"step\":0"), "1 steps");
  EXPECT_EQ(refusal("\"step\":0", "\"step\":null"),
            "run.jsonl:2: step: expected an integer from 0 to 1000000000000, found null");
  EXPECT_EQ(refusal("\"requests\":[\"request-0\"]", "\"requests\":[\"\xff\"]"),
            "run.jsonl:2: is no valid JSON");
}

TEST(LineReader, LinesLongerThanABlock) {
  const std::string lines = std::string(700'000, 'a') + "\n\n" + std::string(10, 'b') + "\nrest";
  std::istringstream stream(lines);
  LineReader reader(stream, "f");
  EXPECT_EQ(reader.next()->size(), 700'000u);
  EXPECT_EQ(*reader.next(), "");
  EXPECT_EQ(*reader.next(), "bbbbbbbbbb");
  EXPECT_EQ(reader.number(), 3u);
  EXPECT_FALSE(reader.next());
  EXPECT_EQ(reader.rest_bytes(), 4u);
}

}  // namespace
}  // namespace minfer
