// The API's cost for the host: a stream event by the number of its tokens, with and without logprobs, and
// the parsing of requests.
//
//   build/release/openai_api_benchmark

#include <string>

#include <benchmark/benchmark.h>

#include "server/api/answer/answer_writer.h"
#include "server/api/fields/json_fields.h"
#include "tests/support/server/api_requests.h"

namespace minfer {
namespace {

constexpr std::string_view kWord = " token";

/// An output of `num_tokens` tokens of six characters, with `num_top` alternatives each (-1: no logprobs).
RequestOutput make_output(int64_t num_tokens, int64_t num_top) {
  RequestOutput output;
  for (int64_t i = 0; i < num_tokens; ++i) {
    output.text += kWord;
    output.tokens.push_back(100);
    if (num_top < 0) continue;
    SampledToken& token = output.logprobs.emplace_back(SampledToken{100, -0.693147f, {}});
    for (int64_t k = 0; k < num_top; ++k)
      token.top.push_back({static_cast<TokenId>(100 + k), -0.693147f - static_cast<float>(k)});
  }
  output.output_tokens = static_cast<int32_t>(num_tokens);
  return output;
}

void write_events(benchmark::State& state, const CompletionRequest& request, const test::TestApi& api,
                  const RequestOutput& output) {
  const auto writer =
      request.dialect->answer(request, {"chatcmpl-0123456789abcdef", 1700000001}, api.context, true);
  std::string events;
  writer->take(0, output, events);  // the first one is preceded by the chat's role
  size_t bytes = 0;
  for (auto _ : state) {
    events.clear();
    writer->take(0, output, events);
    benchmark::DoNotOptimize(events.data());
    bytes = events.size();
  }
  state.counters["bytes"] = static_cast<double>(bytes);
}

/// range(0) tokens an event, range(1) alternatives a token (-1: no logprobs).
void chat_event(benchmark::State& state) {
  const test::TestApi api;
  const CompletionRequest request =
      api.chat(state.range(1) < 0 ? R"("stream":true)" : R"("stream":true,"logprobs":true)");
  write_events(state, request, api, make_output(state.range(0), state.range(1)));
}
BENCHMARK(chat_event)
    ->Args({1, -1})
    ->Args({4, -1})
    ->Args({16, -1})
    ->Args({1, 0})
    ->Args({1, 5})
    ->Args({1, 20});

void completion_event(benchmark::State& state) {
  const test::TestApi api;
  const CompletionRequest request =
      api.completion(state.range(1) < 0 ? R"("stream":true)" : R"("stream":true,"logprobs":5)");
  write_events(state, request, api, make_output(state.range(0), state.range(1)));
}
BENCHMARK(completion_event)->Args({1, -1})->Args({16, -1})->Args({1, 5});

/// A prompt of range(0) token ids.
void parse_ids(benchmark::State& state) {
  test::TestApi api;
  api.context.max_model_len = 1 << 20;
  std::string body = R"({"model":"small","max_tokens":16,"stream":true,"prompt":[1)";
  for (int64_t i = 1; i < state.range(0); ++i)
    body += ",200";
  body += "]}";
  for (auto _ : state)
    benchmark::DoNotOptimize(parse_completion_request(body, api.context));
}
BENCHMARK(parse_ids)->Arg(1)->Arg(512)->Arg(8192)->Unit(benchmark::kMicrosecond);

/// range(0) messages of 100 characters, rendered by the tests' template and tokenised.
void parse_chat(benchmark::State& state) {
  test::TestApi api;
  api.context.max_model_len = 1 << 20;
  std::string messages;
  for (int64_t i = 0; i < state.range(0); ++i) {
    if (i > 0) messages += ',';
    messages += R"({"role":"user","content":")" + std::string(100, 'x') + "\"}";
  }
  const std::string body = R"({"model":"small","messages":[)" + messages + R"(],"stream":true})";
  for (auto _ : state)
    benchmark::DoNotOptimize(parse_chat_request(body, api.context));
}
BENCHMARK(parse_chat)->Arg(1)->Arg(16)->Unit(benchmark::kMicrosecond);

/// A body of range(0) objects of 1,024 members each: its cost is in proportion to its size.
void parse_members(benchmark::State& state) {
  std::string object = "{\"m0\":0";
  for (size_t i = 1; i < kMaxJsonMembers; ++i)
    object += fmt::format(",\"m{}\":0", i);
  object += "}";
  std::string body = "{\"a\":[" + object;
  for (int64_t i = 1; i < state.range(0); ++i)
    body += "," + object;
  body += "]}";
  for (auto _ : state)
    benchmark::DoNotOptimize(parse_json_body(body));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(body.size()));
  state.SetComplexityN(state.range(0));
}
BENCHMARK(parse_members)
    ->RangeMultiplier(8)
    ->Range(1, 512)
    ->Complexity(benchmark::oN)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace minfer

BENCHMARK_MAIN();
