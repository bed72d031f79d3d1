#pragma once

#include "engine/ranks/ranks.h"

namespace minfer {

/// The ranks are processes, which a launcher started: this is the first one. `options` with their processes. Throws Error if the model
/// cannot be divided so. `source` outlives the ranks.
std::unique_ptr<Ranks> make_process_ranks(const ModelSource& source, const EngineOptions& options);

/// Sets the number of ranks to that of the processes. Throws Error if another number is asked for.
void choose_for_processes(EngineOptions& options);

/// Thrown instead of an Error where a process of another rank than the first has done all that it was started for.
struct FollowedToEnd {};

/// What such a process does: follow() with its share of `source`, then FollowedToEnd. Throws what that throws, and then has told the
/// other processes.
[[noreturn]] void follow_first_process(const ModelSource& source, const EngineOptions& options,
                                       int32_t logit_slice);

}  // namespace minfer
