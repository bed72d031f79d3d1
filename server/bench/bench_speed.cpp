#include "server/bench/bench_speed.h"

#include <algorithm>
#include <random>

#include "server/bench/bench_workload.h"

namespace minfer {
namespace {

std::vector<Request> make_requests(Engine& engine, const SpeedResult& test, int32_t prompt_tokens,
                                   int32_t max_tokens, std::mt19937_64& random) {
  std::vector<Request> requests;
  for (int32_t i = 0; i < test.parallel; ++i) {
    Request request;
    request.id = fmt::format("speed-{}", i);
    request.prompt = random_tokens(engine.tokenizer(), prompt_tokens, random);
    request.sampling.temperature = 0.0f;
    request.sampling.ignore_eos = true;
    request.sampling.max_tokens = max_tokens;
    requests.push_back(std::move(request));
  }
  return requests;
}

/// Submits the requests and steps until `done` returns true or nothing is left. `done` sees every output.
template <class Done>
void step_until(Engine& engine, const SpeedResult& test, const std::vector<Request>& requests, Done done) {
  for (const Request& request : requests)
    engine.submit(request);
  bool is_done = false;
  while (engine.has_work() && !is_done) {
    for (const RequestOutput& output : engine.step()) {
      if (output.finish && is_failure(*output.finish)) fail("{}: {}", test.label(), output.finish_detail);
      is_done = done(output) || is_done;
    }
  }
}

/// Prompts are processed first, with the first tokens. The time of the test begins when all sequences have one
/// token and ends when all have given theirs. Sequences whose prompts came first have decoded some more by then.
int64_t run_from_depth(Engine& engine, const SpeedResult& test, std::mt19937_64& random) {
  const int32_t prefill_steps = test.depth * test.parallel / engine.options().max_num_batched_tokens + 2;
  const std::vector<Request> requests =
      make_requests(engine, test, test.depth, 2 * test.generated_tokens + prefill_steps, random);
  int32_t num_begun = 0;
  int64_t num_tokens = 0, begin = 0, end = 0;
  step_until(engine, test, requests, [&](const RequestOutput& output) {
    if (num_begun == test.parallel) num_tokens += std::ssize(output.tokens);
    const bool is_first = output.output_tokens == std::ssize(output.tokens);
    if (is_first && ++num_begun == test.parallel) begin = now_ns();
    if (end == 0 && num_tokens >= test.tokens()) end = now_ns();
    return end > 0;
  });
  for (const Request& request : requests)
    engine.cancel(request.id);
  while (engine.has_work())
    engine.step();
  return end - begin;
}

/// Runs `test` once and returns how long it took.
int64_t run_once(Engine& engine, const SpeedResult& test, std::mt19937_64& random) {
  if (test.depth > 0) return run_from_depth(engine, test, random);
  const std::vector<Request> requests = make_requests(engine, test, std::max(1, test.prompt_tokens),
                                                      std::max(1, test.generated_tokens), random);
  const int64_t begin = now_ns();
  step_until(engine, test, requests, [](const RequestOutput&) { return false; });
  return now_ns() - begin;
}

}  // namespace

std::string SpeedResult::label() const {
  std::string test = prompt_tokens > 0 ? fmt::format("pp{}", prompt_tokens) : "";
  if (generated_tokens > 0) test += fmt::format("{}tg{}", test.empty() ? "" : "+", generated_tokens);
  if (depth > 0) test += fmt::format(" @ d{}", depth);
  return parallel == 1 ? test : fmt::format("{} x{}", test, parallel);
}

std::vector<double> SpeedResult::tokens_per_second() const {
  std::vector<double> speeds;
  for (int64_t ns : samples_ns)
    speeds.push_back(static_cast<double>(tokens()) * 1e9 / static_cast<double>(ns));
  return speeds;
}

std::vector<SpeedResult> list_speed_tests(const SpeedOptions& options) {
  std::vector<SpeedResult> tests;
  for (int32_t parallel : options.parallel) {
    for (int32_t tokens : options.prompt_tokens) {
      if (tokens > 0) tests.push_back({.prompt_tokens = tokens, .parallel = parallel});
    }
    for (int32_t tokens : options.generated_tokens) {
      if (tokens > 0)
        tests.push_back({.generated_tokens = tokens, .depth = options.depth, .parallel = parallel});
    }
    const std::vector<int32_t>& both = options.prompt_and_generated;
    if (both.size() % 2 != 0) fail("--pg: {} numbers, expected two for each test", both.size());
    for (size_t i = 0; i < both.size(); i += 2) {
      tests.push_back({.prompt_tokens = both[i], .generated_tokens = both[i + 1], .parallel = parallel});
    }
  }
  if (tests.empty()) fail("bench: nothing to measure: -p and -n are both 0");
  return tests;
}

void warm_up(Engine& engine, const std::vector<SpeedResult>& tests) {
  std::mt19937_64 random(engine.options().seed);
  const bool has_graphs = engine.backend_info().name == "cuda" && engine.options().cuda_graphs;
  for (const SpeedResult& test : tests) {
    run_once(engine, test, random);
    if (has_graphs) run_once(engine, test, random);
  }
  engine.recorder().reset();
}

void measure(Engine& engine, std::vector<SpeedResult>& tests, int32_t repetitions) {
  std::mt19937_64 random(engine.options().seed);
  for (SpeedResult& test : tests) {
    for (int32_t i = 0; i < repetitions; ++i)
      test.samples_ns.push_back(run_once(engine, test, random));
  }
}

std::vector<double> OverheadResult::overheads() const {
  std::vector<double> overheads;
  for (size_t i = 0; i < recorded.size(); ++i)
    overheads.push_back(unrecorded[i] / recorded[i] - 1.0);
  return overheads;
}

OverheadResult measure_recording_overhead(Engine& engine, const SpeedResult& test, int32_t turns) {
  std::mt19937_64 random(engine.options().seed);
  OverheadResult result;
  const auto tokens_per_second = [&](bool record) {
    engine.recorder().set_enabled(record);
    return static_cast<double>(test.tokens()) * 1e9 / static_cast<double>(run_once(engine, test, random));
  };
  for (const bool record : {false, true})
    tokens_per_second(record);
  for (int32_t turn = 0; turn < turns; ++turn) {
    for (const bool record : {turn % 2 == 0, turn % 2 != 0})
      (record ? result.recorded : result.unrecorded).push_back(tokens_per_second(record));
  }
  engine.recorder().set_enabled(true);
  return result;
}

}  // namespace minfer
