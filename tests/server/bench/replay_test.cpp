// The replay of a recorded load: its prompts, times, cancellations and figures.
#include "server/bench/replay.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <map>

#include <gmock/gmock.h>

#include "kernels/base/error.h"
#include "profiling/json/lines.h"
#include "server/bench/bench_load.h"
#include "tests/support/engine/tiny_engine.h"
#include "tests/support/profiling/sample_profile.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;

EndedRequest recorded(int32_t prompt_tokens, int32_t output_tokens, std::vector<uint32_t> hashes = {}) {
  EndedRequest request;
  request.id = "cmpl-1";
  request.finish = "length";
  request.arrival_ns = 5 * kSecond;
  request.end_ns = 9 * kSecond;
  request.prompt_tokens = prompt_tokens;
  request.output_tokens = output_tokens;
  std::ranges::copy(hashes, request.prefix_hashes.begin());
  request.num_prefixes = static_cast<int32_t>(hashes.size());
  return request;
}

EndedRequest cached(EndedRequest request, int32_t tokens) {
  request.cached_tokens = tokens;
  return request;
}

RecordedLoad load_of(std::vector<EndedRequest> requests) {
  RecordedLoad load;
  load.path = "run.jsonl";
  load.requests = std::move(requests);
  return load;
}

size_t num_alike(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

TEST(ReplayPrompts, BeginAlikeAsFarAsHashesAndCacheSay) {
  const std::vector<EndedRequest> requests = {
      recorded(100, 1, {1, 2, 3}),
      recorded(101, 1, {1, 2, 4}),              // the first 32 tokens of [0]
      cached(recorded(120, 1, {1, 2, 4}), 80),  // the first 64 of [1], which came from the cache
      cached(recorded(70, 1, {1, 2, 5}), 66),   // no block of 64 is alike, so at most 63
      cached(recorded(20, 1, {9}), 16),         // the cache was filled before the record began
      recorded(64, 1, {1, 2, 4}),               // the whole is the beginning of [1]
      recorded(12, 1)};
  const std::unique_ptr<Tokenizer> tokenizer = make_byte_tokenizer(512);
  const ReplayPrompts prompts(requests, *tokenizer, 3);
  std::vector<std::vector<TokenId>> tokens;
  for (size_t i = 0; i < requests.size(); ++i) {
    tokens.push_back(prompts.draw(i));
    EXPECT_EQ(tokens[i].size(), static_cast<size_t>(requests[i].prompt_tokens));
    EXPECT_EQ(tokens[i], prompts.draw(i));
    for (const TokenId token : tokens[i])
      EXPECT_FALSE(tokenizer->is_control(token));
  }
  EXPECT_EQ(num_alike(tokens[0], tokens[1]), 32u);
  EXPECT_EQ(num_alike(tokens[1], tokens[2]), 80u);
  EXPECT_EQ(num_alike(tokens[0], tokens[2]), 32u);
  EXPECT_EQ(num_alike(tokens[2], tokens[3]), 63u) << "the longest of those that begin with 1, 2";
  EXPECT_EQ(num_alike(tokens[0], tokens[4]), 0u);
  EXPECT_EQ(num_alike(tokens[1], tokens[5]), 64u);
  EXPECT_EQ(num_alike(tokens[0], tokens[6]), 0u);
  EXPECT_NE(ReplayPrompts(requests, *tokenizer, 4).draw(0), tokens[0]);
}

TEST(ReplayPrompts, HashesOfABrokenRecordAreTakenAsTheyAre) {
  std::vector<EndedRequest> requests = {recorded(3, 1, {0, 0, 0}), recorded(40, 1, {0, 0, 0, 0, 0})};
  for (int32_t i = 1; i < 2'000; ++i)  // each like the one before, but a token longer
    requests.push_back(cached(recorded(40 + i, 1, {0}), 39 + i));
  const std::unique_ptr<Tokenizer> tokenizer = make_byte_tokenizer(512);
  const ReplayPrompts prompts(requests, *tokenizer, 0);
  for (const size_t i : {size_t{0}, size_t{1}, size_t{1'000}, requests.size() - 1})
    EXPECT_EQ(prompts.draw(i).size(), static_cast<size_t>(requests[i].prompt_tokens));
  EXPECT_EQ(num_alike(prompts.draw(1'999), prompts.draw(2'000)), 2'038u);
}

TEST(RecordedLoad, IsInOrderOfArrivalWithoutWhatNeverRan) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.path() / "run.jsonl";
  std::string lines;
  append_header_line(lines, test::sample_header());
  std::ofstream(path) << lines;
  const auto refusal = [&](size_t most) -> std::string {
    try {
      read_recorded_load(path, most);
    } catch (const FileError& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_THAT(refusal(5),
              HasSubstr("run.jsonl: holds no request that ran: record a load with --profile-out"));
  EndedRequest late = recorded(8, 2), refused = recorded(9'999, 0);
  late.arrival_ns += 7;
  refused.finish = "refused";
  for (const EndedRequest& request : {late, refused, recorded(4, 3)})
    append_line(lines, request);
  std::ofstream(path) << lines << "{\"sch";
  const RecordedLoad load = read_recorded_load(path);
  ASSERT_EQ(load.requests.size(), 2u);
  EXPECT_EQ(load.requests[0].prompt_tokens, 4);
  EXPECT_EQ(load.requests[1].prompt_tokens, 8);
  EXPECT_EQ(load.num_refused, 1u);
  EXPECT_THAT(load.note, HasSubstr("ends within line 5"));
  EXPECT_THAT(refusal(1), HasSubstr("more than 1 requests"));
  EXPECT_EQ(refusal(2), "none");
}

TEST(ReplayWorkload, ArrivesAtTheSpeedAskedFor) {
  const std::unique_ptr<Engine> engine = test::make_tiny_engine();
  EndedRequest late = recorded(20, 6, {1}), last = recorded(1, 1);
  late.arrival_ns += 3 * kSecond;
  late.priority = -2;
  late.stream_interval = 4;
  last.arrival_ns = std::numeric_limits<int64_t>::max() / 2;
  const RecordedLoad load = load_of({recorded(30, 5, {1}), late, last});
  WorkloadOptions options;
  const auto arrivals_at = [&](double speed) {
    options.replay_speed = speed;
    std::vector<double> arrivals;
    for (const Conversation& conversation : replay_workload(load, options, *engine))
      arrivals.push_back(conversation.arrival_s);
    return arrivals;
  };
  EXPECT_THAT(arrivals_at(2.0), ElementsAre(0.0, 1.5, 1e9));
  EXPECT_THAT(arrivals_at(0.5), ElementsAre(0.0, 6.0, 1e9));
  EXPECT_THAT(arrivals_at(1e-320), ElementsAre(0.0, 1e9, 1e9));
  EXPECT_THAT(arrivals_at(std::numeric_limits<double>::infinity()), ElementsAre(0.0, 0.0, 0.0));
  const std::vector<Conversation> workload = replay_workload(load, options, *engine);
  EXPECT_EQ(workload[1].priority, -2);
  EXPECT_EQ(workload[1].stream_interval, 4);
  EXPECT_EQ(workload[1].turns.at(0).output_len, 6);
  EXPECT_EQ(num_alike(workload[0].turns[0].prompt.draw(), workload[1].turns[0].prompt.draw()), 16u);
}

TEST(ReplayWorkload, WhatDoesNotFitIsNamed) {
  const auto refusal = [](const EngineOptions& engine, const EndedRequest& request) -> std::string {
    try {
      replay_workload(load_of({request}), {}, *test::make_tiny_engine(engine));
    } catch (const FileError& error) {
      return error.what();
    }
    return "none";
  };
  const EngineOptions options = test::tiny_engine_options();  // 128 tokens
  EXPECT_EQ(refusal(options, recorded(100, 28)), "none");
  EXPECT_THAT(refusal(options, recorded(100, 29)),
              HasSubstr("run.jsonl: request \"cmpl-1\" has 100 tokens of prompt and 29 of output, but a "
                        "sequence has 128 at most here: raise --max-model-len"));
  EngineOptions small = options;
  small.max_model_len = 0;
  small.num_blocks = 4;
  small.block_size = 16;
  EXPECT_EQ(refusal(small, recorded(60, 4)), "none");
  EXPECT_THAT(refusal(small, recorded(60, 5)), HasSubstr("a sequence has 64 at most here"));
}

/// An engine's records of the requests, in order of arrival.
class Replayed final : public StepSink {
 public:
  Replayed(std::vector<EndedRequest> requests, const EngineOptions& options, int32_t most_in_flight = 1) {
    const std::unique_ptr<Engine> engine = test::make_tiny_engine(options);
    engine->recorder().add_sink(*this);
    begin_ns = now_ns();
    result = run_load(*engine, replay_workload(load_of(std::move(requests)), {.replay_speed = 4.0}, *engine),
                      most_in_flight);
  }
  void consume(const StepRecord&) noexcept override {}
  void consume_request(const EndedRequest& request) noexcept override { ended.push_back(request); }

  int64_t begin_ns = 0;
  LoadResult result;
  std::vector<EndedRequest> ended;
};

TEST(Replay, SendsNothingBeforeItsTime) {
  EndedRequest late = recorded(8, 2);
  late.arrival_ns += kSecond / 5;
  const Replayed replay({recorded(4, 3), late}, test::tiny_engine_options());
  ASSERT_EQ(replay.ended.size(), 2u);
  EXPECT_EQ(replay.ended[0].prompt_tokens, 4);
  EXPECT_EQ(replay.ended[1].prompt_tokens, 8);
  EXPECT_GE(replay.ended[1].arrival_ns - replay.begin_ns, kSecond / 20) << "four times as fast";
}

/// The first `clients` requests come at once, each later one `gap_ms` after an end; each takes 100 ms.
std::vector<EndedRequest> of_clients(int clients, int count, int64_t gap_ms) {
  std::vector<EndedRequest> requests;
  for (int i = 0; i < count; ++i) {
    EndedRequest& request = requests.emplace_back(recorded(4, 2));
    request.arrival_ns += (i / clients) * (100 + gap_ms) * 1'000'000 + i % clients;
    request.end_ns = request.arrival_ns + 100'000'000;
  }
  return requests;
}

TEST(Replay, ClientsThatWaitForAnAnswerWaitForTheOneOfTheReplay) {
  const std::unique_ptr<Engine> engine = test::make_tiny_engine(test::tiny_engine_options());
  const std::vector<Conversation> workload =
      replay_workload(load_of(of_clients(3, 12, 10)), {.replay_speed = 2.0}, *engine);
  for (size_t i = 0; i < workload.size(); ++i) {
    EXPECT_EQ(workload[i].follows < 0, i < 3);
    if (i < 3) continue;
    EXPECT_EQ(workload[static_cast<size_t>(workload[i].follows)].follows < 0, i < 6);
    EXPECT_NEAR(workload[i].arrival_s, 0.005, 1e-6) << "twice as soon behind an end";
  }
  // No request overlaps another, however long this engine takes, and none waits for a time of the record.
  const Replayed replay(of_clients(1, 5, 0), test::tiny_engine_options(), 5);
  ASSERT_EQ(replay.ended.size(), 5u);
  for (size_t i = 1; i < replay.ended.size(); ++i)
    EXPECT_GE(replay.ended[i].arrival_ns, replay.ended[i - 1].end_ns);
}

TEST(Replay, RequestsThatCameAtTimesOfTheirOwnFollowNobody) {
  const std::unique_ptr<Engine> engine = test::make_tiny_engine(test::tiny_engine_options());
  std::vector<EndedRequest> at_once = of_clients(12, 12, 0), growing = of_clients(1, 12, 0);
  for (size_t i = 0; i < growing.size();
       ++i)  // each takes longer than the one before, so more and more are in flight
    growing[i].end_ns = growing[i].arrival_ns + static_cast<int64_t>(i + 1) * 90'000'000;
  for (const auto& [requests, speed] :
       {std::pair(at_once, 1.0), std::pair(growing, 1.0),
        std::pair(of_clients(3, 12, 20), std::numeric_limits<double>::infinity())}) {
    for (const Conversation& again : replay_workload(load_of(requests), {.replay_speed = speed}, *engine))
      EXPECT_EQ(again.follows, -1);
  }
}

TEST(Replay, CancelsBehindAsManyTokensOrAfterAsLong) {
  EndedRequest behind_seven = recorded(20, 7, {1}), at_once = recorded(20, 0, {2}),
               failed = recorded(20, 0, {3});
  behind_seven.finish = at_once.finish = "cancelled";
  behind_seven.stream_interval = 4;
  at_once.end_ns = at_once.arrival_ns;
  failed.finish = "error";
  EndedRequest never = at_once;  // longer to its first token than any machine takes
  never.end_ns += 1'000'000 * kSecond;
  for (const int32_t steps_ahead : {0, 1}) {
    EngineOptions options = test::tiny_engine_options();
    options.steps_ahead = steps_ahead;
    const Replayed replay({behind_seven, at_once, failed, never, recorded(20, 9, {4})}, options);
    ASSERT_EQ(replay.ended.size(), 5u);
    EXPECT_EQ(replay.ended[0].finish, "cancelled");
    EXPECT_EQ(replay.ended[0].output_tokens, 7);
    EXPECT_EQ(replay.ended[0].stream_interval, 4);
    EXPECT_EQ(replay.ended[1].finish, "cancelled");
    EXPECT_EQ(replay.ended[1].output_tokens, 0);
    EXPECT_EQ(replay.ended[2].output_tokens, 1);
    EXPECT_EQ(replay.ended[3].finish, "length");
    EXPECT_EQ(replay.ended[3].output_tokens, 1);
    EXPECT_EQ(replay.ended[4].output_tokens, 9);
    EXPECT_EQ(compute_metrics(replay.result.records, {}).completed, 5);
  }
}

TEST(Replay, PromptsThatWereScoredTakeNothingFromTheCache) {
  EndedRequest scored = recorded(40, 0);
  const Replayed replay({recorded(40, 2, {1, 2}), cached(recorded(40, 2, {1, 2}), 32), scored, scored},
                        test::tiny_engine_options());
  ASSERT_EQ(replay.ended.size(), 4u);
  EXPECT_EQ(replay.ended[1].cached_tokens, 32);
  for (const size_t i : {2, 3}) {
    EXPECT_EQ(replay.ended[i].output_tokens, 0);
    EXPECT_EQ(replay.ended[i].cached_tokens, 0);
    EXPECT_EQ(replay.ended[i].num_prefixes, 0);
    EXPECT_EQ(replay.ended[i].steps.prefill, 1) << "it is computed";
  }
}

TEST(RecordedLoad, KnowsTheChanceThatADraftWasRight) {
  EXPECT_FALSE(load_of({recorded(20, 5)}).acceptance());
  // Each is right with a chance of a half: 0.5 + 0.25 + 0.125 + 0.0625 of four.
  EndedRequest first = recorded(20, 5), second = recorded(20, 5);
  first.drafts = second.drafts = 8;
  first.draft_tokens = second.draft_tokens = 32;
  first.accepted_tokens = 15;
  EXPECT_NEAR(*load_of({first, recorded(20, 5), second}).acceptance(), 0.5, 1e-3) << "over all requests";
  EXPECT_NEAR(*load_of({first}).acceptance(), 0.719, 1e-3);
  first.accepted_tokens = first.draft_tokens;
  EXPECT_NEAR(*load_of({first}).acceptance(), 1.0, 1e-3);
  EXPECT_NEAR(*load_of({second}).acceptance(), 0.0, 1e-3);
}

TEST(RequestFigures, AreThoseOfTheRecords) {
  constexpr int64_t kMillisecond = 1'000'000;
  EndedRequest first = recorded(20, 5, {1}), cut = recorded(10, 2), none = recorded(4, 0);
  first.arrival_ns = 100 * kMillisecond;
  first.first_token_ns = 130 * kMillisecond;
  first.end_ns = 190 * kMillisecond;
  cut.finish = none.finish = "cancelled";
  cut.arrival_ns = none.arrival_ns = 110 * kMillisecond;
  cut.first_token_ns = 120 * kMillisecond;
  cut.end_ns = none.end_ns = 600 * kMillisecond;
  first.has_grammar = cut.has_grammar = true;
  cut.drafts = 3;
  RequestFigures figures;
  for (const EndedRequest& request : {cached(first, 16), cut, none})
    figures.add(request);
  const nlohmann::ordered_json json = figures.json();
  EXPECT_EQ(json["requests"], 3);
  EXPECT_EQ(json["cancelled"], 2);
  EXPECT_EQ(json["prompt_tokens"], 34);
  EXPECT_EQ(json["cached_tokens"], 16);
  EXPECT_EQ(json["output_tokens"], 7);
  EXPECT_DOUBLE_EQ(json["duration"], 0.5);
  EXPECT_DOUBLE_EQ(json["output_throughput"], 14.0);
  EXPECT_DOUBLE_EQ(json["median_ttft_ms"], 20.0);
  EXPECT_DOUBLE_EQ(json["p99_ttft_ms"], 29.8);
  EXPECT_DOUBLE_EQ(json["median_itl_ms"], 15.0) << "of the one that was not cancelled";
  EXPECT_EQ(RequestFigures().json()["output_throughput"], 0.0);

  RecordedLoad load = load_of({first, cut, none});
  load.num_refused = 4;
  load.header.options = {{"block_size", "16"}, {"gone", "x"}, {"seed", "0"}};
  ProfileHeader now;
  now.options = {{"block_size", "32"}, {"new", "y"}, {"seed", "0"}};
  RequestFigures replayed;
  replayed.add(first);
  const nlohmann::ordered_json replay = replay_json(load, 2.0, replayed, now);
  EXPECT_DOUBLE_EQ(replay["ratio"]["output_tokens"], 5.0 / 7.0);
  EXPECT_TRUE(replay["ratio"]["cached_tokens"].is_null()) << "the record has none";
  bool has_row = false;
  for (const std::vector<std::string>& row : replay_table(replay).rows) {
    EXPECT_EQ(std::ranges::count(row, "null"), 0);
    if (row.front() != "cached_tokens") continue;
    has_row = true;
    EXPECT_EQ(row.back(), "-");
  }
  EXPECT_TRUE(has_row);
  EXPECT_EQ(replay["differences"], nlohmann::ordered_json::parse(R"([
    {"option": "block_size", "recorded": "16", "replayed": "32"},
    {"option": "gone", "recorded": "x", "replayed": "absent"},
    {"option": "new", "recorded": "absent", "replayed": "y"}])"));
  EXPECT_EQ(replay["notes"], nlohmann::ordered_json::parse(R"([
    "requests with a grammar, replayed without one: 2",
    "requests with draft tokens, replayed with the same mean share of right ones, not one by one: 1",
    "requests that were refused, left out: 4"])"));
}

}  // namespace
}  // namespace minfer
