#pragma once

#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "server/bench_workload.h"

namespace minfer {

/// What a load test measured; times are milliseconds since the request was sent, as vLLM's benchmark counts
/// them.
struct LoadResult {
  double duration_s = 0.0;
  int64_t completed = 0;
  int64_t failed = 0;  ///< refused by the engine
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  std::vector<double> ttft_ms;  ///< time to first token, one a request
  std::vector<double>
      tpot_ms;                 ///< time per output token after the first, one a request of two tokens or more
  std::vector<double> itl_ms;  ///< time between two responses of a request
  std::vector<double> e2el_ms;  ///< time to the last token
};

/// Sends the workload to the engine at its times and runs it to the end. Draws a progress bar on a terminal.
LoadResult run_load(Engine& engine, const std::vector<TimedRequest>& workload, int32_t max_concurrency);

/// The result under the names of vLLM's `bench serve --save-result`.
nlohmann::ordered_json load_result_json(const LoadResult& result, const WorkloadOptions& options,
                                        const std::string& model);

}  // namespace minfer
