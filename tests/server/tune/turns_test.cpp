// Options that are measured in turns, and the programs that runs start.

#include <gmock/gmock.h>
#include <unistd.h>

#include "kernels/base/error.h"
#include "server/tune/child_process.h"
#include "server/tune/trial_session.h"
#include "tests/support/profiling/sample_profile.h"

namespace minfer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

nlohmann::json took(double seconds) {
  return {{"busy_s", seconds}, {"output_throughput", 1.0 / seconds}};
}

TEST(Turns, EachTurnRunsAllAndOneThatFailsNoMore) {
  std::vector<Alternative> alternatives{{}, {.options = {"--a"}}, {.options = {"--b", "2"}}};
  std::vector<std::string> order;
  double left_s = 100.0;
  take_turns(
      alternatives,
      [&](const Words& options) {
        order.push_back(Alternative{.options = options}.text());
        left_s -= 10.0;
        if (options == Words{"--a"}) fail("--a: unknown");
        return took(options.empty() ? 4.0 : 3.0);
      },
      9, [&] { return left_s; });
  // The first turn takes 30 s, the second 20 s, and so on until less than 20 s are left.
  EXPECT_THAT(order, ElementsAre("as recorded", "--a", "--b 2", "as recorded", "--b 2", "as recorded",
                                 "--b 2", "as recorded", "--b 2"));
  EXPECT_EQ(alternatives[1].error, "--a: unknown");
  const MeasuredGain gain = measured_gain(alternatives[0], alternatives[2], "busy_s");
  EXPECT_EQ(gain.turns, 4u);
  EXPECT_DOUBLE_EQ(gain.median, 0.25);
  EXPECT_DOUBLE_EQ(measured_gain(alternatives[0], alternatives[2], "output_throughput", true).median, 0.25);
  EXPECT_TRUE(gain.helped());
  EXPECT_EQ(measured_gain(alternatives[0], alternatives[1], "busy_s").text(), "did not run");
}

TEST(Turns, OneTurnRunsHoweverLittleTimeIsLeft) {
  std::vector<Alternative> alternatives{{}, {.options = {"--a"}}};
  take_turns(
      alternatives, [](const Words&) { return took(1.0); }, 5, [] { return -1.0; });
  EXPECT_EQ(alternatives[1].runs.size(), 1u);
  EXPECT_THROW(
      take_turns(
          alternatives, [](const Words&) -> nlohmann::json { fail("no model"); }, 5, [] { return 1.0; }),
      Error)
      << "the one that others are compared with";
}

TEST(Turns, AGainHelpsOnlyIfEveryTurnSaysSo) {
  const Alternative base{.options = {}, .runs = {took(10.0), took(10.0), took(10.0)}};
  const Alternative mixed{.options = {"--a"}, .runs = {took(5.0), took(5.0), took(10.1)}};
  const Alternative hardly{.options = {"--b"}, .runs = {took(9.9), took(9.9), took(9.9)}};
  EXPECT_FALSE(measured_gain(base, mixed, "busy_s").helped());
  EXPECT_EQ(measured_gain(base, mixed, "busy_s").text(), "-1 to 50 % (3 turns)");
  EXPECT_FALSE(measured_gain(base, hardly, "busy_s").helped());
}

TEST(ChildProcess, ItsStreamsAndItsEndAreTold) {
  const ChildResult result = run_child({"/bin/sh", "-c", "cat; echo out; echo wrong >&2; exit 3"}, 60.0);
  EXPECT_EQ(result.output, "out\n");
  EXPECT_EQ(result.errors, "wrong\n");
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(run_child({"/bin/sh", "-c", "kill -TERM $$"}, 60.0).status, 128 + SIGTERM);
  EXPECT_EQ(run_child({"/nowhere/at/all"}, 60.0).status, 127);
}

TEST(ChildProcess, OfALongStreamTheFirstPartIsKept) {
  const ChildResult result = run_child({"/bin/sh", "-c", "exec head -c 20000000 /dev/zero"}, 600.0);
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.output.size(), size_t{16} << 20);
}

TEST(ChildProcess, OneThatWritesWithoutEndIsEndedInTime) {
  const ChildResult result = run_child({"/bin/sh", "-c", "exec cat /dev/zero"}, 1.0);
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.status, 128 + SIGKILL);
  EXPECT_LE(result.output.size(), size_t{16} << 20);
}

TEST(RecordedOptions, AreThoseInForceAsACommandLineHasThem) {
  ProfileHeader header = test::sample_header();
  header.backend = "cpu";
  header.threads = 3;
  header.options = {{"max_num_seqs", "7"}, {"cuda_graphs", "false"},       {"enable_prefix_caching", "true"},
                    {"seed", "5"},         {"all_reduce", "peer, faster"}, {"target_itl_ms", "auto"}};
  EXPECT_THAT(recorded_options(header),
              ElementsAre("--device", "cpu", "--threads", "3", "--max-num-seqs", "7", "--no-cuda-graphs",
                          "--enable-prefix-caching", "--target-itl-ms", "auto"));
}

TEST(SecondsOf, ReadsUnitsAndRefusesTheRest) {
  EXPECT_EQ(seconds_of("--budget", "90"), 90.0);
  EXPECT_EQ(seconds_of("--budget", "1.5m"), 90.0);
  for (const char* text : {"", "0s", "-1s", "inf", "nan", "3h", "1e9", "s"}) {
    try {
      seconds_of("--budget", text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("--budget: ")) << text;
    }
  }
}

}  // namespace
}  // namespace minfer
