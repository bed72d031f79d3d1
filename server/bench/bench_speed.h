#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/bench/bench_output.h"

namespace minfer {

/// Speed of prompt processing and of generation, each alone, in the manner of llama.cpp's llama-bench.
struct SpeedOptions {
  std::vector<int32_t> prompt_tokens{512};     ///< one test each; 0: none
  std::vector<int32_t> generated_tokens{128};  ///< one test each; 0: none
  /// Prompt and generated tokens of tests that do both, one after the other: two numbers a test.
  std::vector<int32_t> prompt_and_generated;
  int32_t depth = 0;                 ///< tokens of context before a generation test begins; 0: one
  std::vector<int32_t> parallel{1};  ///< sequences at once; every test is run for each
  int32_t repetitions = 5;
};

/// One test and the time of each repetition.
struct SpeedResult {
  /// Tokens of each sequence. With both, later prompts are processed in the steps in which earlier sequences decode.
  int32_t prompt_tokens = 0;     ///< 0: a generation test
  int32_t generated_tokens = 0;  ///< 0: a prompt test
  int32_t depth = 0;             ///< of a generation test
  int32_t parallel = 1;
  std::vector<int64_t> samples_ns = {};

  std::string label() const;  ///< e.g. "pp512", "tg128", "pp512+tg128", "tg128 @ d512 x16"
  int64_t tokens() const { return int64_t{prompt_tokens + generated_tokens} * parallel; }
  std::vector<double> tokens_per_second() const;
};

/// The tests that the options ask for, not run yet. Throws Error if there are none.
std::vector<SpeedResult> list_speed_tests(const SpeedOptions& options);
/// Runs every test once without measuring (on a GPU twice, since a step makes its graph the second time),
/// and then starts the step records anew. Throws Error if a test does not fit the engine's limits.
void warm_up(Engine& engine, const std::vector<SpeedResult>& tests);
void measure(Engine& engine, std::vector<SpeedResult>& tests, int32_t repetitions);

/// The cost of recording steps: a test with and without, turn by turn.
struct OverheadResult {
  std::vector<double> recorded = {};    ///< tokens/s of each turn with recording
  std::vector<double> unrecorded = {};  ///< and without
  /// The time that recording adds in each turn, as a share of the time without: unrecorded / recorded - 1.
  std::vector<double> overheads() const;
};
/// Warms up both ways, then takes `turns` pairs whose order alternates, so that a drift of the machine's
/// speed favours neither. On CUDA, a step that is not recorded launches nothing for recording: it replays
/// other graphs, in which no kernel stamps and libraries' kernels have no stamp-only kernel in front.
OverheadResult measure_recording_overhead(Engine& engine, const SpeedResult& test, int32_t turns);

}  // namespace minfer
