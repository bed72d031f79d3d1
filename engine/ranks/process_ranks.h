#pragma once

#include "engine/ranks/ranks.h"

namespace minfer {

/// Makes ranks that are processes, which a launcher started; this process is the first. `options` name
/// the processes. Throws Error if the model cannot be divided among them. `source` outlives the ranks.
std::unique_ptr<Ranks> make_process_ranks(const ModelSource& source, const EngineOptions& options);

/// Sets the number of ranks to the number of processes. Throws Error if another number is asked for.
void choose_for_processes(EngineOptions& options);

/// Thrown instead of an Error when a process of another rank than the first has done all that it was started for.
struct FollowedToEnd {};

/// Runs such a process: follow() with its share of `source`, then throws
/// FollowedToEnd. If follow() throws, tells the other processes and rethrows.
[[noreturn]] void follow_first_process(const ModelSource& source, const EngineOptions& options,
                                       int32_t logit_slice);

}  // namespace minfer
