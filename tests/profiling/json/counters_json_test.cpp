
#include <cmath>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error_types.h"
#include "profiling/json/lines.h"
#include "tests/support/json_schema.h"
#include "tests/support/paths.h"
#include "tests/support/profiling/sample_counters.h"

namespace minfer {
namespace {

nlohmann::json counters_line(const CounterWindow& window) {
  std::string text;
  append_line(text, window);
  EXPECT_TRUE(text.ends_with('\n'));
  return nlohmann::json::parse(text);
}

CounterWindow refused_window() {
  CounterWindow window;
  window.error = "cuptiPmSamplingEnable: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)";
  return window;
}

test::JsonSchema counters_schema() {
  return test::JsonSchema(
      nlohmann::json::parse(std::ifstream(source_path("profiling/json/counters.schema.json"))));
}

CounterWindow read_counters_of(const nlohmann::json& json, std::string_view place) {
  simdjson::dom::parser parser;
  return read_json<CounterWindow>(JsonField(parser.parse(json.dump()).value(), place));
}

TEST(CountersSchema, EveryWrittenLineIsValid) {
  EXPECT_EQ(counters_schema().check(counters_line(test::sample_counters())), "");
  EXPECT_EQ(counters_schema().check(counters_line(refused_window())), "");
  EXPECT_EQ(counters_schema().check(counters_line({})), "");
}

TEST(CountersJson, OnlyLinesOfOtherRanksNameTheirs) {
  EXPECT_FALSE(counters_line(test::sample_counters()).contains("rank"));
  for (CounterWindow window : {test::sample_counters(), refused_window()}) {
    window.rank = 3;
    const nlohmann::json line = counters_line(window);
    EXPECT_EQ(counters_schema().check(line), "");
    EXPECT_EQ(line.at("rank"), 3);
    const CounterWindow read = read_counters_of(line, "here");
    EXPECT_EQ(read.rank, 3);
    EXPECT_EQ(read.error, window.error);
  }
  nlohmann::json wrong = counters_line(test::sample_counters());
  wrong["rank"] = -1;
  EXPECT_FALSE(counters_schema().check(wrong).empty());
  EXPECT_THROW(read_counters_of(wrong, "here"), FileError);
}

// The control: lines that break the schema do not pass.
TEST(CountersSchema, WrongLinesAreNot) {
  const auto broken = [&](const char* pointer, const nlohmann::json& value) {
    nlohmann::json json = counters_line(test::sample_counters());
    json[nlohmann::json::json_pointer(pointer)] = value;
    return !counters_schema().check(json).empty();
  };
  EXPECT_TRUE(broken("/schema", "minfer.counters/2"));
  EXPECT_TRUE(broken("/error", "both"));
  EXPECT_TRUE(broken("/clock", "wall"));
  EXPECT_TRUE(broken("/counters/0", "cycles"));
  EXPECT_TRUE(broken("/steps/0/covered", 1.5));
  EXPECT_TRUE(broken("/work/0/graph", "prefill"));
  EXPECT_TRUE(broken("/work/0/ops/0/calls", 0));
  EXPECT_TRUE(broken("/work/0/ops/0/dram_written_bytes", 1));
  EXPECT_TRUE(broken("/cost/naps", 1));
  EXPECT_TRUE(broken("/lost", -1));
}

TEST(CountersJson, ReadsBackWhatWasWritten) {
  const CounterWindow window = test::sample_counters();
  const nlohmann::json json = counters_line(window);
  const CounterWindow read = read_counters_of(json, "line");
  EXPECT_EQ(read.error, "");
  EXPECT_EQ(read.begin_ns, window.begin_ns);
  EXPECT_DOUBLE_EQ(read.us, window.us);
  EXPECT_EQ(read.interval_ns, window.interval_ns);
  EXPECT_EQ(read.clock, window.clock);
  EXPECT_EQ(read.clock_shift_ns, window.clock_shift_ns);
  EXPECT_EQ(read.samples, window.samples);
  EXPECT_EQ(read.lost, window.lost);
  EXPECT_EQ(read.counters, window.counters);
  EXPECT_EQ(read.left_out, window.left_out);
  EXPECT_DOUBLE_EQ(read.drain_ms, window.drain_ms);
  EXPECT_DOUBLE_EQ(read.attribution_ms, window.attribution_ms);

  ASSERT_EQ(read.steps.size(), 1u);
  EXPECT_EQ(read.steps[0].step, 12);
  EXPECT_DOUBLE_EQ(read.steps[0].covered, 0.99875);
  EXPECT_DOUBLE_EQ(read.steps[0].measured[Counter::dram_read_bytes], 16'060'522'496.5);
  EXPECT_FALSE(read.steps[0].measured.has(Counter::nvlink_sent_bytes));
  EXPECT_EQ(read.steps[0].counted_written_bytes, 8'000'000);

  ASSERT_EQ(read.work.size(), 2u);
  EXPECT_EQ(read.work[0].graph_batch, 32);
  EXPECT_EQ(read.work[0].replays, 21);
  const CounterOp& op = read.work[0].ops.at(0);
  EXPECT_EQ(op.op, "gate_up_swiglu");
  EXPECT_EQ(op.calls, 32);
  EXPECT_EQ(op.samples, 2'981);
  EXPECT_EQ(read.work[1].ops.at(0).samples, 0);
  EXPECT_DOUBLE_EQ(op.measured[Counter::dram_read_bytes], 3'758'096'384.5);
  EXPECT_DOUBLE_EQ(op.measured[Counter::l2_hit], 0.015);
  EXPECT_DOUBLE_EQ(op.read_error_bytes, 1'024.5);
  EXPECT_DOUBLE_EQ(op.counted_read_bytes, 3'758'000'000.5);
  EXPECT_NEAR(json["work"][0]["ops"][0]["read_gbps"].get<double>(), op.read_gbps(), 0.001);
  EXPECT_EQ(read.work[1].graph_batch, 0);
  EXPECT_EQ(read.work[1].phase, StepPhase::mixed);
  EXPECT_TRUE(std::isnan(read.work[1].ops.at(0).read_error_bytes));
  EXPECT_FALSE(json["work"][1]["ops"][0].contains("read_gbps"));
}

TEST(CountersJson, AnEarlierVersionDoesNotSayHowManySamplesAnOpHad) {
  nlohmann::json json = counters_line(test::sample_counters());
  json["work"][0]["ops"][0].erase("samples");
  EXPECT_EQ(counters_schema().check(json), "");
  const CounterWindow old = read_counters_of(json, "line");
  EXPECT_EQ(old.work[0].ops.at(0).samples, -1);
  EXPECT_FALSE(counters_line(old)["work"][0]["ops"][0].contains("samples"));
  json["work"][0]["ops"][0]["samples"] = -1;
  EXPECT_FALSE(counters_schema().check(json).empty());
  EXPECT_THROW(read_counters_of(json, "line"), FileError);
}

TEST(CountersJson, AnErrorStandsAlone) {
  const nlohmann::json json = counters_line(refused_window());
  EXPECT_EQ(read_counters_of(json, "line").error, refused_window().error);
}

TEST(CountersJson, SaysWhereALineIsWrong) {
  nlohmann::json json = counters_line(test::sample_counters());
  json["work"][0]["ops"][0]["phase"] = "later";
  try {
    read_counters_of(json, "run.jsonl:7");
    FAIL() << "it was read";
  } catch (const FileError& error) {
    EXPECT_NE(std::string(error.what()).find("run.jsonl:7: work[0].ops[0].phase"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace minfer
