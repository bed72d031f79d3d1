// Advice that is tried and options that are found, by replays of a recorded load.
#include <filesystem>
#include <fstream>
#include <map>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/support/server/commands_fixture.h"

namespace minfer {
namespace {

using nlohmann::json;
using test::Outcome;
using testing::HasSubstr;
using testing::Not;

class TuneCommandTest : public test::CommandsFixture {
 protected:
  /// Prompts in pieces of 8 tokens, each of which reads all weights: the cost far exceeds the differences between runs.
  void record_tiny_chunks() const {
    const Outcome outcome = minfer(
        std::string(
            "bench --num-prompts 8 --input-len 240 --output-len 1 --max-num-batched-tokens 8 --profile-out "
            "load.jsonl ") +
        kTiny);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  }
};

TEST_F(TuneCommandTest, AdviceIsTriedAndWhatItGainsIsMeasured) {
  record_tiny_chunks();
  const Outcome outcome = minfer("profile explain load.jsonl --try --budget 2s -o json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json report = json::parse(outcome.out);
  EXPECT_EQ(report.at("requests"), 8);
  bool helped = false;
  for (const json& trial : report.at("trials")) {
    EXPECT_EQ(trial.at("error"), "") << trial;
    EXPECT_GE(trial.at("measured").at("turns"), 1) << trial;
    EXPECT_EQ(trial.at("runs").size(), trial.at("measured").at("turns")) << trial;
    if (trial.at("finding") == "tiny chunks") {
      EXPECT_EQ(trial.at("figure"), "busy_s");
    }
    helped = helped || trial.at("measured").at("helped");
  }
  // The machine decides what helps. The conclusion must follow from the runs on every machine.
  EXPECT_EQ(helped, report.at("options") != "") << report;
  EXPECT_THAT(report.at("command").get<std::string>(),
              HasSubstr("minfer serve synthetic:tiny:q8_0 --device cpu"));

  const Outcome text = minfer("profile explain load.jsonl --try --budget 1s");
  EXPECT_THAT(text.out, HasSubstr("8 of 8 requests were replayed"));
  EXPECT_THAT(text.out, testing::AnyOf(HasSubstr("Best of these:\n  minfer serve"),
                                       HasSubstr("Nothing that was tried helped")));
}

TEST_F(TuneCommandTest, WhatWasTriedStaysInTheProfile) {
  record_tiny_chunks();
  EXPECT_THAT(minfer("profile explain load.jsonl").out, Not(HasSubstr("Measured")));
  for (int turn = 0; turn < 2; ++turn) {
    const Outcome outcome = minfer("profile explain load.jsonl --try --budget 1s -o json");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const json tried = json::parse(outcome.out).at("trials");
    const Outcome later = minfer("profile explain load.jsonl -o json");
    ASSERT_EQ(later.exit_code, 0) << later.err;
    std::map<std::string, json> kept;
    const json explained = json::parse(later.out);
    for (const json& finding : explained.at("findings"))
      for (const json& trial : finding.at("measured"))
        kept[trial.at("option")] = trial;
    ASSERT_FALSE(tried.empty());
    for (const json& trial : tried) {
      ASSERT_TRUE(kept.contains(trial.at("option"))) << trial;
      const json& line = kept.at(trial.at("option"));
      EXPECT_NEAR(line.at("median").get<double>(), trial.at("measured").at("median").get<double>(), 1e-4);
      EXPECT_EQ(line.at("turns"), trial.at("measured").at("turns")) << "the newest counts";
      EXPECT_NEAR(line.at("estimated_to").get<double>(), trial.at("estimated_to").get<double>(), 1e-4);
      EXPECT_NE(line.at("device"), "");
    }
  }
  EXPECT_THAT(minfer("profile explain load.jsonl").out, HasSubstr("Measured: --max-num-batched-tokens"));
  for (const char* reads : {"report load.jsonl", "diff load.jsonl load.jsonl", "requests load.jsonl",
                            "trace load.jsonl -o trace.json", "view load.jsonl -o page.html"}) {
    const Outcome outcome = minfer(std::string("profile ") + reads);
    EXPECT_EQ(outcome.exit_code, 0) << reads << outcome.err;
    if (std::string(reads).starts_with("report")) {
      EXPECT_THAT(outcome.out, HasSubstr("Measured: "));
    }
  }
}

TEST_F(TuneCommandTest, AFileThatTakesNoLineIsAWarning) {
  record_tiny_chunks();
  std::ofstream(path("load.jsonl"), std::ios::app) << "{\"schema\":";
  const auto bytes = std::filesystem::file_size(path("load.jsonl"));
  const Outcome outcome = minfer("profile explain load.jsonl --try --budget 1s");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("load.jsonl: the trials are not kept: the file ends within line"));
  EXPECT_EQ(std::filesystem::file_size(path("load.jsonl")), bytes);
}

TEST_F(TuneCommandTest, WhatCannotBeTriedIsAnError) {
  record_tiny_chunks();
  const Outcome other = minfer("profile explain load.jsonl --try --model synthetic:nothing");
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.err, HasSubstr("minfer: error: synthetic model \"nothing\" is not known"));
  EXPECT_THAT(minfer("profile explain load.jsonl --budget 3s").err, HasSubstr("--try"));
  EXPECT_THAT(minfer("profile explain load.jsonl --try --budget soon").err, HasSubstr("--budget: \"soon\""));
  EXPECT_THAT(minfer("profile explain --url http://127.0.0.1:1 --try").err, HasSubstr("--url"));
  EXPECT_THAT(minfer("tune --replay load.jsonl --objective speed").err, HasSubstr("--objective: \"speed\""));
}

TEST_F(TuneCommandTest, EveryOptionIsTriedAndTheCommandHasWhatWasKept) {
  record_tiny_chunks();
  const Outcome outcome = minfer("tune --replay load.jsonl --budget 4s -o json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json report = json::parse(outcome.out);
  EXPECT_EQ(report.at("figure"), "output_throughput");
  EXPECT_THAT(report.at("command").get<std::string>(), HasSubstr(report.at("options").get<std::string>()));
  EXPECT_EQ(report.at("gain").at("turns") != 0, report.at("options") != "") << report;
  for (const json& step : report.at("steps"))
    EXPECT_GE(step.at("turns").get<int>() + (step.at("error") != "" ? 1 : 0), 1) << step;
  const Outcome later = minfer("profile explain load.jsonl");
  EXPECT_THAT(later.out, HasSubstr("of the time for a token, ")) << "of the finding that advises the option";
  const Outcome goodput =
      minfer("tune --replay load.jsonl --objective goodput:ttft:60000,tpot:60000 --budget 1s");
  EXPECT_EQ(goodput.exit_code, 0) << goodput.err;
  EXPECT_THAT(goodput.out, HasSubstr("Tuned for goodput:ttft:60000,tpot:60000"));
}

}  // namespace
}  // namespace minfer
