#pragma once

#include <span>
#include <vector>

#include "engine/evaluator.h"
#include "tests/support/models/tiny_model.h"
#include "tests/support/temporary_directory.h"

namespace minfer::test {

/// Logits of a tiny model whose matrices have these plain types in turn (set_matrix_types()), through a file.
inline std::vector<float> logits_with(std::span<const DType> types, int32_t experts, DeviceChoice device) {
  ModelParts model = tiny_model("llama", experts);
  set_matrix_types(model, types);
  const TemporaryDirectory dir;
  const std::filesystem::path path = dir.path() / "model.gguf";
  model.builder().write(path);
  const std::unique_ptr<ModelSource> source = open_model(path.string());
  EngineOptions options;
  options.device = device;
  options.max_model_len = 16;
  Evaluator evaluator(*source, options);
  std::vector<float> logits;
  evaluator.run(std::vector<TokenId>{1, 5, 9, 4, 7, 7, 3}, 0, [&](int32_t, std::span<const float> rows) {
    logits.insert(logits.end(), rows.begin(), rows.end());
  });
  return logits;
}

}  // namespace minfer::test
