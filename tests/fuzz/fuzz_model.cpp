// A small valid model with changed bytes: it is refused with an Error, or runs two tokens.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "models/decoder/decoder.h"
#include "tests/support/models/tiny_model.h"

namespace minfer {
namespace {

constexpr int32_t kBlockSize = 16;

/// Runs two tokens of an empty context through all layers.
void run_two_tokens(const ModelSource& source) {
  const std::unique_ptr<Backend> backend = make_cpu_backend(1);
  const ModelConfig& config = source.config();
  ModelWeights weights = load_weights(source, *backend);
  const KvCache kv(*backend, config, {}, DType::f32, 1, kBlockSize);
  const RecurrentStatePool states(*backend, config, config.is_recurrent() ? 1 : 0);
  Decoder decoder(config, std::move(weights), *backend, kv, states,
                  {.max_tokens = 2, .logit_slice = 2, .max_positions = kBlockSize});
  const std::vector<int32_t> tokens{0, config.vocab_size - 1}, from_zero{0, 1}, query_start{0, 2},
      context_len{2}, block_table{0}, state_slots{0};
  ForwardBatch batch;
  batch.num_tokens = 2;
  batch.num_sequences = 1;
  batch.num_logit_rows = 2;
  batch.max_blocks = 1;
  batch.token_ids = tokens.data();
  batch.positions = batch.slots = batch.logit_rows = from_zero.data();
  batch.query_start = query_start.data();
  batch.context_len = context_len.data();
  batch.block_table = block_table.data();
  batch.state_slots = state_slots.data();
  backend->launch_step({.batch = batch}, [&](const ForwardBatch& device) { return decoder.forward(device); });
  backend->finish_step({});
}

const std::vector<std::vector<std::byte>>& valid_models() {
  static const std::vector<std::vector<std::byte>> models{
      test::tiny_model("llama").build(), test::tiny_model("llama", 4).build(),
      test::tiny_model("qwen2").build(), test::tiny_model("qwen3").build(),
      test::tiny_model("qwen3moe", 4).build()};
  return models;
}

/// Changes to a model: records of an offset (3 bytes) and the new byte for it. Most offsets are within the
/// header, where a change matters.
std::vector<std::byte> change(std::vector<std::byte> model, std::span<const uint8_t> changes) {
  for (; changes.size() >= 4; changes = changes.subspan(4)) {
    const uint32_t offset = changes[0] | changes[1] << 8 | changes[2] << 16;
    model[offset % model.size()] = static_cast<std::byte>(changes[3]);
  }
  return model;
}

}  // namespace
}  // namespace minfer

/// Runs before the first input, whose time is limited: unoptimised code takes seconds for this on a busy machine.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  minfer::valid_models();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const auto& models = minfer::valid_models();
  const std::vector<std::byte> bytes =
      minfer::change(models[data[0] % models.size()], std::span(data, size).subspan(1));
  try {
    minfer::run_two_tokens(*minfer::open_model_in_memory(bytes, "fuzz"));
  } catch (const minfer::Error&) {
    return 0;
  }
  return 0;
}
