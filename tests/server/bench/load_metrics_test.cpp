// The figures of load tests, against examples worked out by hand from the formulas of vLLM's benchmark.
#include "server/bench/load_metrics.h"

#include <gmock/gmock.h>

#include "kernels/base/error.h"
#include "server/bench/bench_output.h"

namespace minfer {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

constexpr int64_t kMs = 1'000'000;

RequestRecord record(int64_t start_ms, std::vector<int64_t> chunk_ms, int64_t output_tokens) {
  RequestRecord result;
  result.start_ns = start_ms * kMs;
  for (int64_t time : chunk_ms)
    result.chunk_ns.push_back(time * kMs);
  result.input_tokens = 10;
  result.output_tokens = output_tokens;
  return result;
}

TEST(LoadMetrics, LatenciesOfARequest) {
  const RequestRecord request = record(100, {150, 160, 190}, 9);  // three responses with nine tokens
  EXPECT_DOUBLE_EQ(request.ttft_ms(), 50.0);
  EXPECT_DOUBLE_EQ(request.e2el_ms(), 90.0);
  EXPECT_DOUBLE_EQ(request.tpot_ms(), 40.0 / 8);
  EXPECT_THAT(request.itl_ms(), ElementsAre(10.0, 30.0));
  const RequestRecord single = record(100, {150}, 1);
  EXPECT_DOUBLE_EQ(single.tpot_ms(), 0.0);
  EXPECT_THAT(single.itl_ms(), ElementsAre());
}

TEST(LoadMetrics, SumsAndSamples) {
  RequestRecord failed = record(0, {5}, 1);
  failed.error = "HTTP 429";
  const LoadMetrics metrics =
      compute_metrics({record(0, {20, 30}, 2), failed, record(10, {50}, 1), failed}, {});
  EXPECT_EQ(metrics.completed, 2);
  EXPECT_EQ(metrics.failed, 2);
  EXPECT_EQ(metrics.input_tokens, 20);
  EXPECT_EQ(metrics.output_tokens, 3);
  EXPECT_THAT(metrics.latencies_ms.at("ttft"), ElementsAre(20.0, 40.0));
  EXPECT_THAT(metrics.latencies_ms.at("e2el"), ElementsAre(30.0, 40.0));
  EXPECT_THAT(metrics.latencies_ms.at("itl"), ElementsAre(10.0));
  EXPECT_THAT(metrics.latencies_ms.at("tpot"), ElementsAre(10.0)) << "a request of one token has none";
  EXPECT_EQ(metrics.errors, (std::map<std::string, int64_t>{{"HTTP 429", 2}}));
}

TEST(LoadMetrics, AnAnswerWithoutOutputHasNoLatencies) {
  const LoadMetrics metrics =
      compute_metrics({record(0, {20, 30}, 2), record(5, {}, 0)}, parse_goodput({"ttft:99"}));
  EXPECT_EQ(metrics.completed, 2);
  EXPECT_EQ(metrics.input_tokens, 20);
  EXPECT_EQ(metrics.good, 1);
  EXPECT_THAT(metrics.latencies_ms.at("ttft"), ElementsAre(20.0));
  EXPECT_THAT(metrics.latencies_ms.at("e2el"), ElementsAre(30.0));
}

TEST(LoadMetrics, PeaksAreOfWholeSecondsSinceTheFirstRequest) {
  // Seconds from 500 ms on: [500, 1500), [1500, 2500), [2500, 3500).
  const LoadMetrics metrics = compute_metrics(
      {record(500, {1400, 1600, 1700}, 3), record(1400, {2400, 2600}, 8), record(2600, {3000}, 1)}, {});
  EXPECT_DOUBLE_EQ(metrics.max_output_tokens_per_s, 6.0)
      << "2 of the first request and half of the second's 8";
  EXPECT_EQ(metrics.max_concurrent_requests, 2);
}

TEST(LoadMetrics, GoodRequestsMeetAllBounds) {
  const std::vector<RequestRecord> records = {record(0, {20, 30}, 2),    // ttft 20, tpot 10, e2el 30
                                              record(0, {21, 30}, 2),    // ttft 21, tpot 9
                                              record(0, {10, 110}, 11),  // ttft 10, tpot 10, e2el 110
                                              record(0, {20}, 1)};       // tpot counts as 0
  EXPECT_EQ(compute_metrics(records, parse_goodput({"ttft:20"})).good, 3);
  EXPECT_EQ(compute_metrics(records, parse_goodput({"ttft:20", "e2el:100"})).good, 2);
  EXPECT_EQ(compute_metrics(records, parse_goodput({"tpot:9.5"})).good, 2);
  RequestRecord failed = record(0, {1}, 1);
  failed.error = "timed out";
  EXPECT_EQ(compute_metrics({failed}, parse_goodput({"ttft:20"})).good, 0);
}

TEST(LoadMetrics, GoodputIsParsedOrRefused) {
  EXPECT_EQ(parse_goodput({"ttft:200", "tpot:1.5"}), (Goodput{{"ttft", 200.0}, {"tpot", 1.5}}));
  for (const char* bad :
       {"ttft", "ttft:", ":5", "itl:5", "ttft:x", "ttft:5ms", "ttft:-1", "ttft:nan", "ttft:inf", ""})
    EXPECT_THROW(parse_goodput({bad}), Error) << bad;
}

TEST(LoadMetrics, NothingMeasuredGivesNoFigures) {
  const LoadMetrics metrics = compute_metrics({}, {});
  EXPECT_EQ(metrics.completed + metrics.failed + metrics.max_concurrent_requests, 0);
  EXPECT_DOUBLE_EQ(metrics.max_output_tokens_per_s, 0.0);
}

TEST(BenchStatistics, DeviationsOfASampleAndOfAll) {
  const std::vector<double> values = {2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0};
  EXPECT_DOUBLE_EQ(mean_of(values), 5.0);
  EXPECT_DOUBLE_EQ(population_deviation_of(values), 2.0);
  EXPECT_THAT(deviation_of(values), DoubleNear(2.138089935, 1e-9));
  EXPECT_DOUBLE_EQ(population_deviation_of({}), 0.0);
  EXPECT_DOUBLE_EQ(population_deviation_of({3.0}), 0.0);
}

TEST(BenchStatistics, PercentilesLieBetweenRanks) {
  EXPECT_DOUBLE_EQ(percentile_of({4.0, 1.0, 3.0, 2.0}, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(percentile_of({4.0, 1.0, 3.0, 2.0}, 0.25), 1.75);
  EXPECT_DOUBLE_EQ(percentile_of({7.0}, 0.95), 7.0);
  EXPECT_DOUBLE_EQ(percentile_of({}, 0.5), 0.0);
}

}  // namespace
}  // namespace minfer
