// Counts and biases that stay on the device from step to step, against the CPU backend, which gets them anew each time.

#include <algorithm>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "kernels/base/error_types.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/cuda/cuda_sampler.h"
#include "tests/support/random_data.h"

namespace minfer {
namespace {

using test::CudaSampler;
using test::CudaTensor;

/// A sequence as the engine would sample it: its history grows, and the newest token may still be on the device only.
struct State {
  uint64_t id = 0;
  std::vector<int32_t> history;
  int32_t num_prompt = 0;
  std::vector<LogitBias> biases;
  SamplingRow params;

  std::vector<TokenCount> counts(std::span<const int32_t> pending = {}) const {
    const auto largest = [](std::span<const int32_t> tokens) {
      return tokens.empty() ? -1 : *std::ranges::max_element(tokens);
    };
    std::vector<TokenCount> by_token(static_cast<size_t>(std::max(largest(history), largest(pending)) + 1));
    for (size_t i = 0; i < history.size(); ++i) {
      TokenCount& count = by_token[static_cast<size_t>(history[i])];
      if (i < static_cast<size_t>(num_prompt)) {
        count.in_prompt = true;
      } else {
        ++count.output_count;
      }
    }
    for (const int32_t token : pending)
      ++by_token[static_cast<size_t>(token)].output_count;
    for (size_t token = 0; token < by_token.size(); ++token)
      by_token[token].token = static_cast<int32_t>(token);
    std::erase_if(by_token,
                  [](const TokenCount& count) { return count.output_count == 0 && !count.in_prompt; });
    return by_token;
  }
  SamplingRow row() const {
    SamplingRow row = params;
    row.state = id;
    row.history = history;
    row.num_prompt = num_prompt;
    row.biases = biases;
    row.position = static_cast<int64_t>(history.size());
    return row;
  }
};

std::vector<State> random_states(int count, int64_t vocabulary, int longest_prompt, std::mt19937& random) {
  const auto below = [&](int64_t n) { return static_cast<int32_t>(random() % static_cast<uint64_t>(n)); };
  std::vector<State> states(static_cast<size_t>(count));
  uint64_t id = 0;
  for (State& state : states) {
    state.id = ++id;
    state.num_prompt = below(longest_prompt + 1);
    for (int32_t i = 0; i < state.num_prompt; ++i)
      state.history.push_back(below(vocabulary));
    state.params.seed = id;
    state.params.temperature = id % 3 == 0 ? 0.0f : 0.8f;
    if (id % 2 == 0) state.params.repetition_penalty = 1.3f;
    if (id % 3 != 1) state.params.presence_penalty = 0.4f;
    if (id % 5 != 0) state.params.frequency_penalty = id % 4 == 0 ? -0.2f : 0.3f;
    if (id % 4 == 1) {
      for (int i = 0; i < 40; ++i)
        state.biases.push_back({below(vocabulary), static_cast<float>(below(5)) - 2.0f});
    }
  }
  return states;
}

/// Expects the CPU's tokens for rows whose newest token is (or is not) only on the device. Appends the tokens.
void expect_cpu_tokens(CudaSampler& sampler, const CudaTensor& tensor, const std::vector<float>& logits,
                       std::span<State* const> states, std::span<const int32_t> pending, const char* what) {
  std::vector<SamplingRow> on_device, on_cpu;
  std::vector<std::vector<TokenCount>> counts;
  for (size_t i = 0; i < states.size(); ++i) {
    on_device.push_back(states[i]->row());
    counts.push_back(states[i]->counts(pending.empty() ? pending : pending.subspan(i, 1)));
    if (!pending.empty()) on_device.back().pending_row = static_cast<int32_t>(i);
    on_cpu.push_back(states[i]->row());
  }
  for (size_t i = 0; i < states.size(); ++i)
    on_cpu[i].counts = counts[i];
  const std::vector<SampledToken> found = sampler.sample(tensor.tensor(), on_device, pending);
  const std::vector<SampledToken> expected = test::sample_on_cpu(logits, on_cpu);
  for (size_t i = 0; i < states.size(); ++i)
    ASSERT_EQ(found[i].token, expected[i].token) << what << ", state " << states[i]->id;
}

class CudaSamplingState : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_F(CudaSamplingState, FollowsItsSequencesFromStepToStep) {
  constexpr int64_t kVocabulary = 1003;
  constexpr int kRows = 8;
  std::mt19937 random(1);
  std::vector<State> states = random_states(kRows, kVocabulary, 300, random);
  CudaSampler sampler(kRows, kVocabulary);
  std::vector<State*> rows;
  for (State& state : states)
    rows.push_back(&state);
  std::vector<int32_t> pending;
  for (int step = 0; step < 40; ++step) {
    const std::vector<float> logits =
        test::normal_values(kRows * kVocabulary, static_cast<uint64_t>(step), 0.3f);
    const CudaTensor tensor(DType::f32, kRows, kVocabulary, logits);
    expect_cpu_tokens(sampler, tensor, logits, rows, pending, "a step ahead");
    if (HasFatalFailure()) return;
    for (size_t i = 0; i < pending.size(); ++i)
      states[i].history.push_back(pending[i]);  // the host knows it now
    pending = sampler.tokens();
  }
}

/// More sequences than slots, so that slots change hands; some come back with many new tokens.
TEST_F(CudaSamplingState, SurvivesTheLossOfItsSlot) {
  constexpr int64_t kVocabulary = 517;
  constexpr int kRows = 4;
  std::mt19937 random(2);
  std::vector<State> states = random_states(9, kVocabulary, 50, random);
  CudaSampler sampler(kRows, kVocabulary);
  for (int step = 0; step < 60; ++step) {
    std::vector<State*> rows;
    for (State& state : states)
      rows.push_back(&state);
    std::shuffle(rows.begin(), rows.end(), random);
    rows.resize(kRows);
    const std::vector<float> logits =
        test::normal_values(kRows * kVocabulary, static_cast<uint64_t>(step), 0.3f);
    const CudaTensor tensor(DType::f32, kRows, kVocabulary, logits);
    expect_cpu_tokens(sampler, tensor, logits, rows, {}, "changing slots");
    if (HasFatalFailure()) return;
    const std::vector<int32_t> drawn = sampler.tokens();
    for (size_t i = 0; i < rows.size(); ++i)
      rows[i]->history.insert(rows[i]->history.end(), 1 + static_cast<size_t>(step) % 6, drawn[i]);
  }
}

/// Histories that take several pieces of the staging memory; prompt and output in one piece.
TEST_F(CudaSamplingState, TakesHistoriesOfAnyLength) {
  constexpr int64_t kVocabulary = 2000;
  std::mt19937 random(3);
  std::vector<State> states = random_states(3, kVocabulary, 10, random);
  const int32_t lengths[] = {300'001, 65'536, 131'071};
  for (size_t i = 0; i < states.size(); ++i) {
    states[i].history.clear();
    for (int32_t n = 0; n < lengths[i]; ++n)
      states[i].history.push_back(static_cast<int32_t>(random() % (kVocabulary - 500)));
    states[i].num_prompt = lengths[i] - 1000;
    states[i].params.repetition_penalty = 1.5f;
    states[i].params.frequency_penalty = 0.25f;
  }
  std::vector<State*> rows{&states[0], &states[1], &states[2]};
  CudaSampler sampler(3, kVocabulary);
  const std::vector<float> logits = test::normal_values(3 * kVocabulary, 4);
  const CudaTensor tensor(DType::f32, 3, kVocabulary, logits);
  expect_cpu_tokens(sampler, tensor, logits, rows, {}, "long histories");
}

/// This case once ended the server: 128 sequences whose prompts have 128,000 different tokens.
TEST_F(CudaSamplingState, HoldsTheLongestPromptsOfManySequences) {
  constexpr int64_t kVocabulary = 128'256;
  constexpr int kRows = 128;
  std::vector<State> states(kRows);
  std::vector<State*> rows;
  for (State& state : states) {
    state.id = static_cast<uint64_t>(&state - states.data()) + 1;
    state.params.temperature = 0.0f;
    state.params.repetition_penalty = 1.1f;
    for (int32_t token = 0; token < 128'000; ++token)
      state.history.push_back(token);
    state.num_prompt = 128'000;
    rows.push_back(&state);
  }
  const std::vector<float> logits = test::normal_values(kRows * kVocabulary, 5);
  const CudaTensor tensor(DType::f32, kRows, kVocabulary, logits);
  CudaSampler sampler(kRows, kVocabulary);
  for (int step = 0; step < 3; ++step) {
    expect_cpu_tokens(sampler, tensor, logits, rows, {}, "long prompts");
    if (HasFatalFailure()) return;
    const std::vector<int32_t> drawn = sampler.tokens();
    for (size_t i = 0; i < states.size(); ++i)
      states[i].history.push_back(drawn[i]);
  }
}

TEST_F(CudaSamplingState, BiasesShrinkToTheirFirstOnes) {
  constexpr int64_t kVocabulary = 700;
  std::mt19937 random(6);
  std::vector<State> states = random_states(1, kVocabulary, 0, random);
  State& state = states[0];
  state.params = {};
  state.biases.clear();
  for (int32_t token = 0; token < 600; ++token)
    state.biases.push_back({token, token < 20 ? 3.0f : -std::numeric_limits<float>::infinity()});
  std::vector<State*> rows{&state};
  const std::vector<float> logits = test::normal_values(kVocabulary, 7);
  const CudaTensor tensor(DType::f32, 1, kVocabulary, logits);
  CudaSampler sampler(1, kVocabulary);
  for (const size_t count : {600, 600, 30, 20, 5, 4, 1, 0}) {
    state.biases.resize(count);
    state.history.push_back(0);
    expect_cpu_tokens(sampler, tensor, logits, rows, {}, "fewer biases");
    if (HasFatalFailure()) return;
  }
}

TEST_F(CudaSamplingState, AGraphServesOtherStates) {
  constexpr int64_t kVocabulary = 900;
  constexpr int kRows = 6;
  std::mt19937 random(8);
  std::vector<State> states = random_states(18, kVocabulary, 80, random);
  const std::vector<float> logits = test::normal_values(kRows * kVocabulary, 9, 0.3f);
  const CudaTensor tensor(DType::f32, kRows, kVocabulary, logits);
  CudaSampler sampler(kRows, kVocabulary);
  const cuda::GraphExec graph = sampler.capture(tensor.tensor(), {.greedy_only = false, .logprobs = false});
  for (size_t step = 0; step < 30; ++step) {
    std::vector<SamplingRow> on_device, on_cpu;
    std::vector<std::vector<TokenCount>> counts;
    const size_t first = step / 5 % 3 * kRows;
    for (size_t i = first; i < first + kRows; ++i) {
      on_device.push_back(states[i].row());
      on_cpu.push_back(states[i].row());
      counts.push_back(states[i].counts());
    }
    for (size_t i = 0; i < kRows; ++i)
      on_cpu[i].counts = counts[i];
    sampler.stage(on_device);
    sampler.replay(graph);
    const std::vector<SampledToken> found = sampler.drawn(kRows);
    const std::vector<SampledToken> expected = test::sample_on_cpu(logits, on_cpu);
    for (size_t i = 0; i < kRows; ++i) {
      ASSERT_EQ(found[i].token, expected[i].token) << "step " << step << ", row " << i;
      states[first + i].history.push_back(found[i].token);
    }
  }
}

TEST_F(CudaSamplingState, RefusesWhatBelongsToNoSequence) {
  cuda::SamplingTables tables({.max_sequences = 1, .vocab_size = 10});
  const test::CudaRun run;
  SamplingRow row;
  row.repetition_penalty = 1.1f;
  const std::vector<int32_t> history{1, 2};
  row.history = history;
  EXPECT_THROW(tables.bring(run.launch(), {&row, 1}), Error);
  row.state = 1;
  const std::vector<LogitBias> biases(kMaxRowBiases + 1, {1, 1.0f});
  row.biases = biases;
  EXPECT_THROW(tables.bring(run.launch(), {&row, 1}), Error);
}

}  // namespace
}  // namespace minfer
