#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/options/engine_options.h"
#include "models/decoder/weights/model_source.h"

namespace minfer {

/// A fact that all ranks must have in common, by name.
struct RankFact {
  std::string name;
  std::string value;
};

/// Version, options that shape what is computed, the model's shape, and for each tensor its type, shape and a hash of some of its bytes.
std::vector<RankFact> rank_facts(const ModelSource& source, const EngineOptions& options,
                                 int32_t logit_slice);

/// Converts facts to text, and back.
std::string write_facts(std::span<const RankFact> facts);
std::vector<RankFact> read_facts(std::string_view text);

/// The first few facts of `who` that differ from the first rank's, e.g. "rank 1
/// (host b, process 7): max-model-len is 1024, rank 0 has 2048"; empty: none.
std::string find_difference(std::string_view who, std::span<const RankFact> theirs,
                            std::span<const RankFact> first);

/// Compares the processes of `options` before anything is computed. Where they differ, all throw Error, naming what differs and the rank.
void agree(const ModelSource& source, const EngineOptions& options, int32_t logit_slice);

}  // namespace minfer
