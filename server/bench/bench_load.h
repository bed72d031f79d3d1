#pragma once

#include "engine/engine.h"
#include "server/bench/bench_workload.h"
#include "server/bench/load_metrics.h"

namespace minfer {

/// Sends the workload to the engine in this process at its times and runs it to the end, or to Ctrl-C. Draws a progress bar on
/// a terminal. All tokens are greedy and end tokens are ignored, so that every request generates its full number of tokens.
LoadResult run_load(Engine& engine, const std::vector<Conversation>& workload, int32_t max_concurrency);

}  // namespace minfer
