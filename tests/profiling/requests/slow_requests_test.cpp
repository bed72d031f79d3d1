#include "profiling/requests/slow_requests.h"

#include <fstream>
#include <map>
#include <sstream>
#include <utility>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "profiling/json/lines.h"
#include "profiling/text/table.h"
#include "tests/support/profiling/sample_profile.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

int64_t ns_of_ms(int64_t ms) {
  return ms * 1'000'000;
}

/// Decoding requests come first, then those whose prompts are computed, 100 tokens each.
StepSummary slow_step(int64_t number, int64_t begin_ms, int64_t end_ms, std::vector<std::string> decoding,
                      const std::vector<std::string>& prompts = {}) {
  StepSummary step;
  step.step = number;
  step.start_ns = ns_of_ms(begin_ms);
  step.wall_us = static_cast<double>(end_ms - begin_ms) * 1e3;
  step.gpu_us = step.wall_us;
  BatchShape& shape = step.batch.shape;
  shape.decode_sequences = shape.decode_tokens = static_cast<int32_t>(decoding.size());
  shape.prefill_sequences = static_cast<int32_t>(prompts.size());
  shape.prefill_tokens = 100 * shape.prefill_sequences;
  step.requests = std::move(decoding);
  step.requests.insert(step.requests.end(), prompts.begin(), prompts.end());
  return step;
}

EndedRequest slow_request(const std::string& id, int64_t arrival_ms, int64_t scheduled_ms, int64_t token_ms,
                          int64_t end_ms) {
  EndedRequest request;
  request.id = id;
  request.finish = "length";
  request.arrival_ns = ns_of_ms(arrival_ms);
  request.first_scheduled_ns = ns_of_ms(scheduled_ms);
  request.first_token_ns = ns_of_ms(token_ms);
  request.end_ns = ns_of_ms(end_ms);
  request.prompt_tokens = 200;
  request.output_tokens = 6;
  return request;
}

class SlowRequestsTest : public testing::Test {
 protected:
  /// The slow requests of a profile with these steps, followed by the requests.
  SlowRequests found(RequestOrder order, size_t count = 10) const {
    std::string text;
    append_header_line(text, test::sample_header());
    for (const StepSummary& step : steps)
      append_line(text, step);
    for (const EndedRequest& request : requests)
      append_line(text, request);
    const std::filesystem::path path = directory_.path() / "run.jsonl";
    std::ofstream(path) << text;
    return slow_requests(path, order, count);
  }
  std::vector<std::string> ids(RequestOrder order, size_t count) const {
    std::vector<std::string> ids;
    for (const RequestWaterfall& sum : found(order, count).slowest)
      ids.push_back(sum.request.id);
    return ids;
  }
  static nlohmann::json json_of(const SlowRequests& found) {
    return nlohmann::json::parse(slow_requests_json(found));
  }
  /// The parts of the first request, in milliseconds.
  static std::map<std::string, double> parts_of(const SlowRequests& found) {
    std::map<std::string, double> parts;
    const nlohmann::json document = json_of(found);
    for (const nlohmann::json& row : document["slowest"][0]["waterfall"])
      parts[row["part"]] = row["us"].get<double>() * 1e-3;
    return parts;
  }

  /// Request "a": its prompt in two steps with a step of others in between, a token alone, a token beside a prompt, a step without it,
  /// a token, a step until its preemption is over, a step that computes its tokens again, a token, 15 ms of nothing, a token.
  void run_a() {
    steps = {slow_step(0, 1010, 1020, {}, {"a"}),
             slow_step(1, 1020, 1030, {}, {"b"}),
             slow_step(2, 1030, 1040, {"b"}, {"a"}),
             slow_step(3, 1040, 1045, {"a", "b"}),
             slow_step(4, 1045, 1065, {"b", "a"}, {"c"}),
             slow_step(5, 1065, 1070, {"b", "c"}),
             slow_step(6, 1070, 1075, {"a", "c"}),
             slow_step(7, 1075, 1095, {"c"}),
             slow_step(8, 1095, 1105, {"c"}, {"a"}),
             slow_step(9, 1105, 1115, {"a", "c"}),
             slow_step(10, 1130, 1140, {"a"})};
    EndedRequest a = slow_request("a", 1000, 1010, 1040, 1140);
    a.preemptions = 1;
    a.steps = {.first = 0, .last = 10, .prefill = 3, .decode = 5};
    requests = {a};
  }

  std::vector<StepSummary> steps;
  std::vector<EndedRequest> requests;

 private:
  const test::TemporaryDirectory directory_;
};

TEST_F(SlowRequestsTest, ARequestsTimeIsDividedByTheStepsThatServedIt) {
  run_a();
  const SlowRequests slow = found(RequestOrder::e2e);
  ASSERT_EQ(slow.slowest.size(), 1u);
  EXPECT_EQ(slow.slowest[0].known_steps, 8);
  const std::map<std::string, double> expected{
      {"queue", 10},         {"prefill", 30},          {"prefill.steps", 20},
      {"prefill.rest", 10},  {"decode", 100},          {"decode.alone", 30},
      {"decode.mixed", 20},  {"decode.recompute", 10}, {"decode.preempted", 20},
      {"decode.skipped", 5}, {"decode.rest", 15}};
  EXPECT_EQ(parts_of(slow), expected);
  std::map<std::string, int64_t> counts;
  const nlohmann::json document = json_of(slow);
  for (const nlohmann::json& row : document["slowest"][0]["waterfall"])
    counts[row["part"]] = row["steps"];
  EXPECT_EQ(counts["prefill.steps"], 2);
  EXPECT_EQ(counts["decode.alone"], 4);
  EXPECT_EQ(counts["decode.mixed"], 1);
  EXPECT_EQ(counts["decode.preempted"], 1);
}

TEST_F(SlowRequestsTest, ItsLongestGapsSayWhy) {
  run_a();
  const nlohmann::json gaps = json_of(found(RequestOrder::e2e))["slowest"][0]["gaps"];
  ASSERT_EQ(gaps.size(), 3u);
  EXPECT_EQ(gaps[0]["step"], 8);
  EXPECT_EQ(gaps[0]["us"], 30'000);
  EXPECT_EQ(gaps[0]["step_us"], 10'000);
  EXPECT_EQ(gaps[0]["other_steps"], 1);
  EXPECT_THAT(gaps[0]["why"].get<std::string>(),
              HasSubstr("preempted; steps of others until it computed again what it had: 1"));
  EXPECT_EQ(gaps[1]["step"], 10);
  EXPECT_THAT(gaps[1]["why"].get<std::string>(), HasSubstr("15.0 ms passed before it, with 0 steps"));
  EXPECT_EQ(gaps[2]["step"], 4);
  EXPECT_EQ(gaps[2]["us"], 20'000);
  EXPECT_EQ(gaps[2]["prompt_tokens"], 100);
  EXPECT_EQ(gaps[2]["sequences"], 2);
  EXPECT_THAT(gaps[2]["why"].get<std::string>(),
              HasSubstr("prompts of others computed beside it: 1 (a step without prompts: 7.50 ms)"));
}

TEST_F(SlowRequestsTest, AStepThatNothingExplainsIsHeldAgainstTheOthers) {
  run_a();
  steps.back() = slow_step(10, 1115, 1135, {"a"});
  const nlohmann::json gaps = json_of(found(RequestOrder::e2e))["slowest"][0]["gaps"];
  EXPECT_EQ(gaps[2]["step"], 10);
  EXPECT_THAT(
      gaps[2]["why"].get<std::string>(),
      HasSubstr("took that long: 1 sequences, 0 draft tokens (its mean step without prompts: 10.0 ms)"));
}

TEST_F(SlowRequestsTest, AStepCountsOnlyBetweenFirstTokenAndEnd) {
  steps = {slow_step(0, 1000, 1044, {}, {"a"}), slow_step(1, 1040, 1050, {"a"}),
           slow_step(2, 1050, 1060, {"a"})};
  steps[2].gpu_idle_us = 8'000.0;
  EndedRequest a = slow_request("a", 990, 1002, 1042, 1055);
  a.steps = {.first = 0, .last = 2, .prefill = 1, .decode = 2};
  requests = {a};
  const SlowRequests slow = found(RequestOrder::e2e);
  const std::map<std::string, double> expected{
      {"queue", 12}, {"prefill", 40}, {"prefill.steps", 40}, {"decode", 13}, {"decode.alone", 13}};
  EXPECT_EQ(parts_of(slow), expected);
  ASSERT_EQ(slow.slowest[0].gaps.size(), 2u);
  EXPECT_EQ(slow.slowest[0].gaps[0].us, 6'000.0) << "behind its prompt";
  EXPECT_EQ(slow.slowest[0].gaps[1].us, 5'000.0) << "up to its end";
  EXPECT_THAT(slow_requests_text(slow, false), HasSubstr("no op ran for 8.00 of the step's 10.0 ms"));
}

TEST_F(SlowRequestsTest, ChoosesByWhatIsAskedFor) {
  requests = {slow_request("long", 0, 10, 20, 900), slow_request("late", 0, 10, 400, 500),
              slow_request("halting", 0, 10, 20, 300), slow_request("quick", 0, 10, 20, 30)};
  requests[0].output_tokens = 100;
  requests.push_back(slow_request("never", 0, 10, 0, 2'000));
  requests.back().first_token_ns = 0;
  requests.push_back(slow_request("single", 0, 10, 20, 800));
  requests.back().output_tokens = 1;
  EXPECT_THAT(ids(RequestOrder::e2e, 2), ElementsAre("never", "long"));
  EXPECT_THAT(ids(RequestOrder::ttft, 1), ElementsAre("late")) << "never had no first token";
  EXPECT_THAT(ids(RequestOrder::itl, 10), ElementsAre("halting", "late", "long", "quick"));
  EXPECT_EQ(found(RequestOrder::itl, 2).ended, 6);
  EXPECT_EQ(json_of(found(RequestOrder::itl, 1))["slowest"][0]["us"], 56'000);
}

TEST_F(SlowRequestsTest, RequestsOfOneIdAreToldApartByTheirSteps) {
  steps = {slow_step(0, 0, 10, {}, {"a"}), slow_step(1, 10, 20, {"a"}), slow_step(2, 20, 30, {}, {"a"}),
           slow_step(3, 30, 45, {"a"})};
  requests = {slow_request("a", 0, 0, 10, 20), slow_request("a", 15, 20, 30, 45)};
  requests[0].steps = {.first = 0, .last = 1, .prefill = 1, .decode = 1};
  requests[1].steps = {.first = 2, .last = 3, .prefill = 1, .decode = 1};
  const SlowRequests slow = found(RequestOrder::e2e);
  ASSERT_EQ(slow.slowest.size(), 2u);
  EXPECT_EQ(slow.slowest[0].request.arrival_ns, ns_of_ms(15));
  for (const RequestWaterfall& sum : slow.slowest)
    EXPECT_EQ(sum.known_steps, 2);
}

TEST_F(SlowRequestsTest, WithoutIdsInTheStepsItSaysSo) {
  run_a();
  for (StepSummary& step : steps)
    step.requests.clear();
  const SlowRequests slow = found(RequestOrder::e2e);
  EXPECT_EQ(parts_of(slow), (std::map<std::string, double>{{"queue", 10}, {"prefill", 30}, {"decode", 100}}));
  EXPECT_TRUE(json_of(slow)["slowest"][0]["gaps"].empty());
  const std::string text = slow_requests_text(slow, false);
  EXPECT_THAT(text, HasSubstr("No step of the profile says that it served this request"));
  EXPECT_THAT(text, HasSubstr("0 of its 8"));
  run_a();
  EXPECT_THAT(slow_requests_text(found(RequestOrder::e2e), false), Not(HasSubstr("No step")));
}

// A server that writes no file keeps no ids.
TEST_F(SlowRequestsTest, NumbersStandForIdsWhileTheEngineRuns) {
  run_a();
  const SlowRequests by_id = found(RequestOrder::e2e);
  std::vector<RequestWaterfall> by_number{{.request = requests[0]}};
  by_number[0].request.number = 'a';
  for (StepSummary& step : steps) {
    for (const std::string& id : std::exchange(step.requests, {}))
      step.served.push_back(static_cast<uint32_t>(id[0]));
  }
  add_steps(by_number, steps);
  EXPECT_EQ(by_number[0].known_steps, 8);
  EXPECT_EQ(by_number[0].us, by_id.slowest[0].us);
  EXPECT_EQ(by_number[0].steps, by_id.slowest[0].steps);
  ASSERT_EQ(by_number[0].gaps.size(), 3u);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(by_number[0].gaps[i].step, by_id.slowest[0].gaps[i].step);
}

// Missing lines of steps do not count as a gap for which a request waited.
TEST_F(SlowRequestsTest, StepsThatAreMissingAreNoGaps) {
  run_a();
  steps.erase(steps.begin() + 5, steps.begin() + 8);
  const SlowRequests slow = found(RequestOrder::e2e);
  EXPECT_EQ(slow.slowest[0].known_steps, 7);
  const std::map<std::string, double> parts = parts_of(slow);
  EXPECT_FALSE(parts.contains("decode.preempted"));
  EXPECT_FALSE(parts.contains("decode.skipped"));
  EXPECT_EQ(parts.at("decode.rest"), 45);
  for (const RequestGap& gap : slow.slowest[0].gaps)
    EXPECT_NE(gap.step, 8);
}

TEST_F(SlowRequestsTest, TimesOutOfOrderDoNoHarm) {
  run_a();
  requests.push_back(slow_request("backwards", 5'000, 4'000, 3'000, 2'000));
  requests.push_back(slow_request("gone", 5'000, 9'000, 1'030, 1'035));
  for (EndedRequest& request : requests)
    request.steps = {.first = 0, .last = 10, .prefill = 3, .decode = 5};
  steps[2].requests = {"backwards", "gone"};
  steps[3].requests = {"gone", "backwards"};
  for (const RequestOrder order : {RequestOrder::e2e, RequestOrder::ttft, RequestOrder::itl}) {
    const SlowRequests slow = found(order);
    EXPECT_EQ(slow.slowest.size(), 3u);
    EXPECT_THAT(slow_requests_text(slow, true), HasSubstr("backwards"));
    EXPECT_EQ(json_of(slow)["slowest"].size(), 3u);
  }
}

TEST_F(SlowRequestsTest, WhatRanBesideIsListedWithItsTokens) {
  run_a();
  EndedRequest& a = requests[0];
  a.id = std::string(70, 'x');
  a.client_wait_ns = ns_of_ms(7);
  a.has_grammar = true;
  a.mask_ns = ns_of_ms(4);
  a.grammar_compile_ns = ns_of_ms(12);
  a.forced_tokens = 2;
  a.drafts = 3;
  a.draft_tokens = 9;
  a.accepted_tokens = 5;
  for (StepSummary& step : steps) {
    std::ranges::replace(step.requests, "a", a.id);
    step.host_us[static_cast<size_t>(HostSpan::draft)] = 250.0;
  }
  const SlowRequests slow = found(RequestOrder::e2e);
  const std::map<std::string, double> parts = parts_of(slow);
  EXPECT_EQ(parts.at("client_wait"), 7);
  EXPECT_EQ(parts.at("grammar.mask"), 4);
  EXPECT_EQ(parts.at("grammar.compile"), 12);
  EXPECT_EQ(parts.at("drafts"), 2) << "of the eight steps that served it";
  EXPECT_EQ(json_of(slow)["slowest"][0]["request"]["speculation"]["accepted_tokens"], 5);
  const std::string text = slow_requests_text(slow, false);
  EXPECT_THAT(text, HasSubstr("(5 of 9 drafts\n  right, 2 forced)"));
  EXPECT_THAT(text, HasSubstr("own prompt"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    EXPECT_LE(display_width(line), kTextColumns) << line;
}

}  // namespace
}  // namespace minfer
