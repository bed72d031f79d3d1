#pragma once

#include <memory>
#include <vector>

#include "engine/engine.h"

namespace minfer::test {

inline const std::vector<TokenId> kTinyPrompt{300, 301, 302, 303, 304, 305, 306, 307, 308, 309,
                                              310, 311, 312, 313, 314, 315, 316, 317, 318, 319};

/// Options for 8 sequences of 128 tokens.
inline EngineOptions tiny_engine_options() {
  EngineOptions options;
  options.max_model_len = 128;
  options.max_num_seqs = 8;
  options.num_blocks = 64;
  options.threads = 1;
  return options;
}

/// An engine over synthetic:tiny, whose vocabulary is 512.
inline std::unique_ptr<Engine> make_tiny_engine(const EngineOptions& options = tiny_engine_options()) {
  return std::make_unique<Engine>(open_model("synthetic:tiny:f32"), options);
}

}  // namespace minfer::test
