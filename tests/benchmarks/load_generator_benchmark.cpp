// The cost of a streamed event for the load generator, which shares the machine with the server that it
// measures: parsing alone, beside a JSON parser, and with the sockets.

#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/bench/bench_load.h"
#include "server/bench/completion_stream.h"
#include "tests/support/server/scripted_server.h"

namespace minfer {
namespace {

constexpr int kEvents = 64;

std::string completion_event(int number) {
  return fmt::format(
      "data: "
      "{{\"id\":\"cmpl-8f3a52c1d0e94b7\",\"object\":\"text_completion\",\"created\":1795290111,\"model\":"
      "\"minfer-demo\",\"choices\":[{{\"index\":0,\"text\":\" "
      "word{}\",\"logprobs\":null,\"finish_reason\":null,"
      "\"stop_reason\":null}}],\"usage\":null}}\n\n",
      number);
}

std::string chat_event(int number) {
  return fmt::format(
      "data: "
      "{{\"id\":\"chatcmpl-8f3a52c1d0e94b7\",\"object\":\"chat.completion.chunk\",\"created\":1795290111,"
      "\"model\":\"minfer-demo\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" "
      "word{}\"}},\"logprobs\":null,"
      "\"finish_reason\":null}}]}}\n\n",
      number);
}

std::vector<std::string> events_of(bool is_chat) {
  std::vector<std::string> events;
  for (int i = 0; i < kEvents; ++i)
    events.push_back(is_chat ? chat_event(i) : completion_event(i));
  return events;
}

/// Events as a load test reads them; `pieces` 1: one event a read, 2: each cut in the middle.
void read_events(benchmark::State& state, bool is_chat, int pieces) {
  const std::vector<std::string> events = events_of(is_chat);
  for (auto _ : state) {
    CompletionStream stream(is_chat, false, [] {});
    stream.on_status(200);
    for (const std::string& event : events) {
      const std::string_view bytes = event;
      const size_t cut = pieces == 1 ? bytes.size() : bytes.size() / 2;
      stream.on_body(bytes.substr(0, cut), 1);
      if (cut < bytes.size()) stream.on_body(bytes.substr(cut), 1);
    }
    benchmark::DoNotOptimize(stream.record().chunk_ns.data());
  }
  state.SetItemsProcessed(state.iterations() * kEvents);
}
BENCHMARK_CAPTURE(read_events, completion, false, 1);
BENCHMARK_CAPTURE(read_events, chat, true, 1);
BENCHMARK_CAPTURE(read_events, completion_in_halves, false, 2);

/// The alternative: each event parsed as a document.
void parse_events(benchmark::State& state) {
  const std::vector<std::string> events = events_of(false);
  for (auto _ : state) {
    for (const std::string& event : events)
      benchmark::DoNotOptimize(nlohmann::json::parse(std::string_view(event).substr(6)));
  }
  state.SetItemsProcessed(state.iterations() * kEvents);
}
BENCHMARK(parse_events);

/// Whole requests over loopback. The CPU time is only this thread's, the load generator's.
void load_streams(benchmark::State& state) {
  constexpr int kTokens = 400;
  const auto streams = static_cast<size_t>(state.range(0));
  const test::ScriptedServer server([](test::ServedRequest& request) {
    request.begin_stream();
    for (int i = 0; i < kTokens; ++i)
      request.write_chunk(completion_event(i));
    request.end_stream();
    return true;
  });
  RemoteOptions options;
  options.base_url = server.url();
  options.model = "model";
  RemoteLoad load(options);
  const BenchTurn turn{.prompt = {.tokens = {}, .text = "prompt"}, .output_len = kTokens};
  const std::vector<Conversation> workload(streams, Conversation{.turns = {turn}});
  for (auto _ : state)
    benchmark::DoNotOptimize(load.run(workload, 0).records.size());
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(streams) * kTokens);
}
BENCHMARK(load_streams)->Arg(1)->Arg(64)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace minfer

BENCHMARK_MAIN();
