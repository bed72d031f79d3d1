// The range of steps that an engine traces: where it begins and ends, and its result.
#include "engine/profile_range.h"

#include <limits>
#include <optional>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/error.h"
#include "profiling/json/profile_writer.h"
#include "profiling/trace/range_analysis.h"
#include "tests/support/last_steps.h"
#include "tests/support/profiling/fake_tracer.h"
#include "tests/support/server/test_server.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

using test::Answers;
using test::FakeTracer;
using test::greedy_request;

constexpr int32_t kTokens = 30;  ///< of a request, one in each step

/// An engine over a scripted backend with a fake tracer.
class TracedEngine {
 public:
  explicit TracedEngine(int32_t steps_ahead, bool has_tracer = true) {
    KernelLaunch launch;
    launch.kernel = "step_kernel";
    launches.add(launch);
    test::ScriptedServing serving;
    serving.engine.steps_ahead = steps_ahead;
    serving.before_step = [this](int64_t) { ++num_open; };
    serving.before_finish = [this](int64_t) { --num_open; };
    serving.tracer = has_tracer ? &tracer : nullptr;
    serving.launches = &launches;
    tracer.on_start_or_stop = [this] { EXPECT_EQ(num_open, 0) << "steps are under way"; };
    engine = test::make_scripted_engine(serving);
  }

  /// Options of a range whose results go to `trace` and `ended`.
  ProfileRange::Options options(int64_t first_step, int64_t last_step) {
    return {.first_step = first_step,
            .last_step = last_step,
            .on_trace =
                [this](RangeTrace range) {
                  EXPECT_FALSE(trace.has_value());
                  EXPECT_EQ(num_ended, 0);
                  trace = std::move(range);
                },
            .on_end = [this] { ++num_ended; }};
  }
  /// A request of kTokens steps.
  void submit(const std::string& id) { engine->submit(greedy_request(id, {5, 6, 7}, kTokens)); }
  void step() { answers.step(*engine); }
  const Answers& run() { return answers.run(*engine); }
  std::vector<int64_t> traced_steps() const {
    std::vector<int64_t> numbers;
    for (const TracedStep& step : trace->steps)
      numbers.push_back(step.step);
    return numbers;
  }

  LaunchTable launches;
  FakeTracer tracer;
  int num_open = 0;
  std::optional<RangeTrace> trace;
  int num_ended = 0;
  Answers answers;
  std::unique_ptr<Engine> engine;
};

std::vector<int64_t> numbers(int64_t first, int64_t last) {
  std::vector<int64_t> numbers;
  for (int64_t number = first; number <= last; ++number)
    numbers.push_back(number);
  return numbers;
}

TEST(ProfileRangeTest, TracesItsStepsAndNoOthers) {
  for (const int32_t steps_ahead : {0, 1}) {
    SCOPED_TRACE(steps_ahead);
    TracedEngine traced(steps_ahead);
    traced.engine->set_profile_range(traced.options(4, 9));
    traced.submit("a");
    const Answers& answers = traced.run();
    EXPECT_EQ(answers.at("a").tokens.size(), static_cast<size_t>(kTokens));
    EXPECT_EQ(traced.tracer.steps, numbers(4, 9));
    EXPECT_EQ(traced.tracer.num_starts, 1);
    EXPECT_EQ(traced.tracer.num_stops, 1);
    EXPECT_EQ(traced.num_ended, 1);
    EXPECT_FALSE(traced.engine->has_profile_range());
    ASSERT_TRUE(traced.trace.has_value());
    EXPECT_EQ(traced.trace->error, "");
    EXPECT_EQ(traced.traced_steps(), numbers(4, 9));
    EXPECT_EQ(test::last_steps(traced.engine->recorder(), 1).front().step, kTokens - 1) << "steps go on";
    const RangeAnalysis analysis(std::move(*traced.trace), traced.engine->ops());
    EXPECT_EQ(analysis.line().kernels, 6);
    EXPECT_EQ(analysis.line().unmatched + analysis.line().missing + analysis.line().outside, 0);
  }
}

TEST(ProfileRangeTest, ChangesNoToken) {
  std::vector<TokenId> expected;
  for (const bool traces : {false, true}) {
    TracedEngine traced(1);
    if (traces) traced.engine->set_profile_range(traced.options(3, 20));
    traced.submit("a");
    const Answers& answers = traced.run();
    if (!traces) expected = answers.at("a").tokens;
    EXPECT_EQ(answers.at("a").tokens, expected);
  }
}

TEST(ProfileRangeTest, OneStepAndTheFirstStep) {
  TracedEngine traced(1);
  traced.engine->set_profile_range(traced.options(0, 0));
  traced.submit("a");
  traced.run();
  EXPECT_EQ(traced.traced_steps(), numbers(0, 0));
  EXPECT_EQ(traced.num_ended, 1);
}

TEST(ProfileRangeTest, EndsWithTheLastStepThatThereIs) {
  TracedEngine traced(1);
  traced.engine->set_profile_range(traced.options(20, kTokens - 1));
  traced.submit("a");
  traced.run();
  EXPECT_EQ(traced.num_ended, 1) << "without another step to ask for";
  EXPECT_EQ(traced.traced_steps(), numbers(20, kTokens - 1));
}

TEST(ProfileRangeTest, SeveralInOneEngine) {
  TracedEngine traced(1);
  traced.submit("a");
  for (const int64_t first : {2, 10, 14}) {
    traced.trace.reset();
    traced.num_ended = 0;
    traced.engine->set_profile_range(traced.options(first, first + 2));
    while (traced.num_ended == 0)
      traced.step();
    EXPECT_EQ(traced.traced_steps(), numbers(first, first + 2));
  }
  EXPECT_EQ(traced.tracer.num_starts, 3);
  EXPECT_EQ(traced.tracer.num_stops, 3);
}

TEST(ProfileRangeTest, WhatCannotBeTracedIsToldAtOnceAndStepsGoOn) {
  TracedEngine traced(1);
  traced.tracer.error = "CUPTI is held by nsys";
  traced.engine->set_profile_range(traced.options(5, 8));
  traced.submit("a");
  while (!traced.trace)
    traced.step();
  EXPECT_EQ(traced.trace->error, "CUPTI is held by nsys");
  EXPECT_EQ(traced.num_ended, 0);
  traced.run();
  EXPECT_EQ(traced.num_ended, 1);
  EXPECT_TRUE(traced.tracer.steps.empty());
  EXPECT_EQ(traced.tracer.num_stops, 1) << "the other tool is told of the end";
  EXPECT_EQ(test::last_steps(traced.engine->recorder(), 1).front().step, kTokens - 1);
}

TEST(ProfileRangeTest, AFullTraceEndsBeforeTheRange) {
  for (const int32_t steps_ahead : {0, 1}) {
    TracedEngine traced(steps_ahead);
    ProfileRange::Options options = traced.options(2, 20);
    options.most_records = 5;
    traced.engine->set_profile_range(options);
    traced.submit("a");
    while (!traced.trace)
      traced.step();
    EXPECT_EQ(traced.traced_steps(), numbers(2, 6));
    EXPECT_EQ(traced.num_ended, 0) << "the range goes on";
    EXPECT_TRUE(traced.engine->has_profile_range());
    traced.run();
    EXPECT_EQ(traced.num_ended, 1);
    EXPECT_EQ(traced.tracer.num_stops, 1);
  }
}

TEST(ProfileRangeTest, EndsOnRequest) {
  TracedEngine traced(1);
  traced.engine->set_profile_range(traced.options(3, std::numeric_limits<int64_t>::max()));
  traced.submit("a");
  while (traced.engine->next_step() < 8)
    traced.step();
  EXPECT_EQ(traced.num_open, 1);
  traced.engine->end_profile_range();
  EXPECT_EQ(traced.num_ended, 0) << "a step is under way";
  traced.step();
  EXPECT_EQ(traced.num_ended, 1);
  EXPECT_EQ(traced.traced_steps(), numbers(3, 7));
  traced.run();
}

TEST(ProfileRangeTest, EndsAtOnceWhereNothingRuns) {
  TracedEngine traced(1);
  traced.engine->set_profile_range(traced.options(5, 8));
  traced.engine->end_profile_range();
  EXPECT_EQ(traced.num_ended, 1);
  EXPECT_FALSE(traced.trace.has_value()) << "it had not begun";
  EXPECT_EQ(traced.tracer.num_starts, 0);
}

TEST(ProfileRangeTest, IsCutWhereNoStepFollows) {
  TracedEngine traced(1);
  traced.tracer.on_start_or_stop = nullptr;
  traced.engine->set_profile_range(traced.options(3, 1000));
  traced.submit("a");
  while (traced.engine->next_step() < 8)
    traced.step();
  traced.engine->cut_profile_range();
  EXPECT_EQ(traced.num_ended, 1);
  EXPECT_EQ(traced.traced_steps(), numbers(3, 6)) << "the one under way is not part of it";
  traced.engine->cut_profile_range();
  EXPECT_EQ(traced.num_ended, 1);
}

// A writer that is stuck, or whose file has failed, delays neither steps nor the end of a range.
TEST(ProfileRangeTest, AProfileThatCannotBeWrittenHoldsUpNoStep) {
  const test::TemporaryDirectory directory;
  const std::filesystem::path pipe = directory.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);  // never reads
  ASSERT_GE(reader, 0);
  for (const std::filesystem::path& path : {pipe, std::filesystem::path("/dev/full")}) {
    SCOPED_TRACE(path);
    TracedEngine traced(1);
    ProfileHeader header;
    header.version = std::string(1 << 20, 'x');  // more than the pipe holds
    header.launches = &traced.launches;
    ProfileWriter writer(path, header, {.close_timeout = std::chrono::milliseconds(20)});
    traced.engine->recorder().add_sink(writer);
    ProfileRange::Options options = traced.options(4, 20);
    options.on_trace = [&](RangeTrace range) { writer.add_range(std::move(range)); };
    options.on_end = [&] {
      ++traced.num_ended;
      writer.add_line("{}\n");
    };
    traced.engine->set_profile_range(options);
    traced.submit("a");
    EXPECT_EQ(traced.run().at("a").tokens.size(), static_cast<size_t>(kTokens));
    EXPECT_EQ(traced.num_ended, 1);
    EXPECT_EQ(traced.tracer.steps, numbers(4, 20));
    traced.engine->recorder().remove_sink(writer);
    const ProfileWriter::Stats stats = writer.close();
    EXPECT_EQ(stats.written, 0u);
    EXPECT_EQ(stats.dropped, static_cast<uint64_t>(kTokens));
    EXPECT_EQ(stats.dropped_lines, 1u + 1u + 1u + 17u * 2u + 1u + 1u)
        << "header, launch, range, steps and kernels, \"{}\", the request";
  }
  ::close(reader);
}

TEST(ProfileRangeTest, AnEngineMayGoWhileItTraces) {
  TracedEngine traced(1);
  traced.engine->set_profile_range(traced.options(3, 1000));
  traced.submit("a");
  while (traced.engine->next_step() < 8)
    traced.step();
  traced.tracer.on_start_or_stop = nullptr;
  traced.engine.reset();
  EXPECT_EQ(traced.tracer.num_stops, 1);
  EXPECT_EQ(traced.num_ended, 0) << "nobody is called back";
}

TEST(ProfileRangeTest, WithoutATracerItOnlyEnds) {
  TracedEngine traced(1, false);
  traced.engine->set_profile_range(traced.options(3, 6));
  traced.submit("a");
  traced.run();
  EXPECT_FALSE(traced.trace.has_value());
  EXPECT_EQ(traced.num_ended, 1);
  TracedEngine unwanted(1);
  ProfileRange::Options options = unwanted.options(3, 6);
  options.traces = false;
  unwanted.engine->set_profile_range(options);
  unwanted.submit("a");
  unwanted.run();
  EXPECT_EQ(unwanted.tracer.num_starts, 0);
  EXPECT_EQ(unwanted.num_ended, 1);
}

TEST(ProfileRangeTest, OneAtATimeAndForwards) {
  TracedEngine traced(0);
  EXPECT_THROW(traced.engine->set_profile_range(traced.options(5, 4)), Error);
  EXPECT_FALSE(traced.engine->has_profile_range());
  traced.engine->set_profile_range(traced.options(5, 5));
  EXPECT_THROW(traced.engine->set_profile_range(traced.options(7, 9)), Error);
}

TEST(ProfileRangeTest, StepsThatHavePassedAreLeftOut) {
  TracedEngine traced(1);
  traced.submit("a");
  while (traced.engine->next_step() < 10)
    traced.step();
  traced.engine->set_profile_range(traced.options(4, 12));
  traced.run();
  EXPECT_EQ(traced.traced_steps(), numbers(10, 12));
}

}  // namespace
}  // namespace minfer
