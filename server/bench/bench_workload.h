#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "models/tokenizer/tokenizer.h"

namespace minfer {

/// The requests of a load test.
struct WorkloadOptions {
  int32_t num_prompts = 0;   ///< with turns: conversations
  int32_t input_len = 128;   ///< tokens of a random prompt, behind its prefix
  int32_t output_len = 128;  ///< tokens to generate
  int32_t prefix_len = 0;    ///< tokens in front of every random prompt, the same for all
  /// Random lengths, of input and output: uniform between (1 - ratio) and (1 + ratio) times the length.
  double range_ratio = 0.0;
  int32_t num_turns = 1;  ///< of a conversation; each turn's prompt is input_len long, behind all before it
  /// JSON Lines: {"prompt": TEXT or [ids], "output_len": N, "priority": N}, the last two optional; empty: random prompts.
  std::string dataset = {};
  std::string replay = {};    ///< a profile: its requests, see replay.h; empty: another load
  double replay_speed = 1.0;  ///< how much faster they arrive; infinite: all at once
  double request_rate = std::numeric_limits<double>::infinity();  ///< requests (conversations) a second
  double burstiness = 1.0;      ///< shape of the gamma distribution of the gaps; 1: exponential
  int32_t max_concurrency = 0;  ///< requests in flight at most; 0: no limit
  int32_t num_warmups = 0;      ///< requests like the first one, sent before and not counted
  uint64_t seed = 0;
};

/// A prompt: its tokens, or a function that makes them when it is sent, or, without either, its text.
struct BenchPrompt {
  std::vector<TokenId> tokens = {};
  std::string text = {};
  std::function<std::vector<TokenId>()> draw = {};
};

struct BenchTurn {
  BenchPrompt prompt;  ///< the new prompt of this turn
  int32_t output_len = 0;
};

/// Turns sent one after the other, each behind all earlier prompts and answers. Most have one.
struct Conversation {
  std::vector<BenchTurn> turns;
  double arrival_s = 0.0;  ///< after the start of the test, or after the end of the one that it follows
  int64_t follows = -1;    ///< index of an earlier conversation that no other follows; -1: none
  int32_t priority = 0;
  // For the engine in this process only.
  int32_t stream_interval = 0;      ///< tokens between two responses; 0: the engine's
  bool scores_prompt = false;       ///< wants the logprobs of its prompt
  int32_t cancel_after_tokens = 0;  ///< output tokens; 0: it is not cancelled by their number
  int64_t cancel_after_ns = -1;     ///< time after its arrival; -1: it is not cancelled by time
};

/// Conversations in order of arrival. Random prompts are tokens of `tokenizer`, or as many English
/// words if it is null. Throws FileError for a data set that cannot be read, naming the line.
std::vector<Conversation> make_workload(const WorkloadOptions& options, const Tokenizer* tokenizer);

/// options.num_warmups times the first turn of the workload, all at once.
std::vector<Conversation> make_warmup(const WorkloadOptions& options,
                                      const std::vector<Conversation>& workload);

/// Seconds from the start to each of `count` arrivals. Gaps have a gamma distribution with mean 1 / rate and variance 1 /
/// (burstiness * rate^2), scaled so that the last arrival is at count / rate, as in vLLM's benchmark. An infinite rate: all at 0.
std::vector<double> arrival_times(size_t count, double rate, double burstiness, std::mt19937_64& random);

/// `count` tokens drawn uniformly from those that are text.
std::vector<TokenId> random_tokens(const Tokenizer& tokenizer, int32_t count, std::mt19937_64& random);

}  // namespace minfer
