// The cost of clients that read nothing of their streams for those that do: the 99th percentile of the time between two tokens of 16
// streams, alone and beside 8 stalled readers in turn, and the median of the ratios. Steps take 4 ms and compute nothing.
//   stalled_readers_benchmark [ROUNDS]
#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

#include "tests/support/server/client_swarm.h"
#include "tests/support/server/test_server.h"

namespace minfer::test {
namespace {

constexpr size_t kReaders = 16, kStalled = 8;
constexpr std::chrono::milliseconds kStep{4};

ScriptedServing paced_serving() {
  ScriptedServing serving;
  serving.engine.max_model_len = 4096;
  serving.engine.num_blocks = 64 * 256;
  serving.server.limits.write_timeout = std::chrono::hours(1);  // no client is dropped
  serving.before_step = [](int64_t) { std::this_thread::sleep_for(kStep); };
  return serving;
}

double itl_p99_ms(const TestServer& server) {
  std::vector<SwarmClient> clients(
      kReaders, {.request = completion_request(completion_body({5}, 100, true), "Connection: close\r\n")});
  run_swarm(server.port(), clients);
  std::vector<double> gaps;
  for (const SwarmClient& client : clients) {
    const std::vector<int64_t>& times = client.received_at_ns;
    for (size_t piece = 1; piece < times.size(); ++piece)
      gaps.push_back(static_cast<double>(times[piece] - times[piece - 1]) * 1e-6);
  }
  std::ranges::sort(gaps);
  return gaps.at(gaps.size() * 99 / 100);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.at(values.size() / 2);
}

void measure(int num_rounds) {
  TestServer server(paced_serving());
  std::vector<double> alone, beside, ratios;
  for (int round = 0; round < num_rounds; ++round) {
    alone.push_back(itl_p99_ms(server));
    std::vector<RawClient> stalled;
    for (size_t i = 0; i < kStalled; ++i) {
      stalled.push_back(server.connect());
      stalled.back().set_receive_buffer(4096);
      stalled.back().send(completion_request(completion_body({6}, 3000, true)));
    }
    const auto all_run = [&] { return server.metric("vllm:num_requests_running") == kStalled; };
    if (!wait_until(all_run)) throw std::runtime_error("the stalled readers' requests do not run");
    beside.push_back(itl_p99_ms(server));
    ratios.push_back(beside.back() / alone.back());
    stalled.clear();
    if (!server.wait_until_idle()) throw std::runtime_error("the stalled readers' requests do not end");
  }
  fmt::print(
      "{} rounds: ITL p99 {:.2f} ms alone, {:.2f} ms beside {} stalled readers (medians); median ratio "
      "{:.3f}\n",
      num_rounds, median(alone), median(beside), kStalled, median(ratios));
}

}  // namespace
}  // namespace minfer::test

int main(int argc, char** argv) {
  minfer::test::measure(argc > 1 ? std::atoi(argv[1]) : 21);
}
