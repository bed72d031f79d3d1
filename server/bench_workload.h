#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "engine/request.h"

namespace minfer {

/// What a load test sends.
struct WorkloadOptions {
  int32_t num_prompts = 0;
  int32_t input_len = 128;   ///< tokens of a random prompt
  int32_t output_len = 128;  ///< tokens to generate, whatever the model would like
  /// JSON Lines: {"prompt": TEXT or [ids], "output_len": N, "priority": N}, the last two optional; empty:
  /// random prompts
  std::string dataset;
  double request_rate = 0.0;    ///< requests per second, exponential gaps; 0: all at once
  int32_t max_concurrency = 0;  ///< requests in flight at most; 0: no limit
  uint64_t seed = 0;
};

struct TimedRequest {
  Request request;
  double arrival_s = 0.0;  ///< after the start of the test
};

/// Requests in order of arrival. Throws FileError for a data set that cannot be read, naming the line.
std::vector<TimedRequest> make_workload(const WorkloadOptions& options, const Tokenizer& tokenizer);

/// `count` tokens drawn evenly from those that are text.
std::vector<TokenId> random_tokens(const Tokenizer& tokenizer, int32_t count, std::mt19937_64& random);

}  // namespace minfer
