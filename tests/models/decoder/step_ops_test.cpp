// The ops of golden models' steps, with their arguments and the source of each operand, and the op tables of profiles, compared with
// tests/golden/step_ops.txt: one line a model, with a hash of the text for each device and rank. MINFER_STEP_OPS names a folder to
// write the texts to; MINFER_UPDATE_GOLDEN=1 writes the file anew.

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "models/decoder/decoder.h"
#include "models/decoder/weights/shard.h"
#include "tests/support/models/recording_backend.h"
#include "tests/support/paths.h"

namespace minfer {
namespace {

constexpr int32_t kStepBlockSize = 16, kStepBlocks = 4, kStepTokens = 9;

struct Step {
  int32_t decoding, prompts, tokens_of_prompt, logit_rows;
};
constexpr Step kSteps[] = {{1, 0, 0, 1}, {2, 0, 0, 2}, {0, 1, 2, 1}, {3, 2, 3, 4}};

std::string describe(const OpInfo& op) {
  const DeltaNetShape& net = op.delta_net;
  return fmt::format(
      "{} {} {} {}: {} {} weights {} file {} {} {} {} heads {} {} {} {} {} net {} {} {} {} {} rotary {} "
      "window {} {} {} experts {} {} "
      "ranks {} bytes {} {}\n",
      op.name, op.layer, name(op.kind), name(op.scope), op.in_features, op.out_features, op.weight_bytes,
      op.file_bytes, op.converted, op.fp8_products, op.add_to_out, op.heads, op.kv_heads, op.head_size,
      op.v_head_size, op.v_in_k, net.key_heads, net.value_heads, net.key_size, net.value_size, op.v_is_k,
      op.rotary_size, op.window.keys, op.window.chunked, name(op.kv_dtype), op.experts, op.experts_used,
      op.ranks, op.in_element_bytes, op.out_element_bytes);
}

std::string record(const ModelSource& source, const test::RecordedDevice& device) {
  test::RecordingBackend backend(device);
  const ModelConfig& config = source.config();
  ModelWeights weights = load_weights(source, backend);
  const KvLayout layout = KvLayout::of(config, kStepBlocks * kStepBlockSize, kStepBlockSize);
  const KvCache kv(backend, config, layout, DType::f32, 8 * kStepBlocks, kStepBlockSize);
  const RecurrentStatePool states(backend, config, config.is_recurrent() ? 8 : 0);
  Decoder decoder(
      config, std::move(weights), backend, kv, states,
      {.max_tokens = kStepTokens, .logit_slice = 2, .max_positions = kStepBlocks * kStepBlockSize});
  backend.name_ops(decoder.ops());
  std::string text;
  for (const OpInfo& op : decoder.ops())
    text += describe(op);
  for (const Step& step : kSteps) {
    ForwardBatch batch;
    batch.num_decode_sequences = batch.num_decode_tokens = step.decoding;
    batch.num_sequences = step.decoding + step.prompts;
    batch.num_tokens = step.decoding + step.prompts * step.tokens_of_prompt;
    batch.num_logit_rows = step.logit_rows;
    batch.max_blocks = kStepBlocks;
    batch.window_row = layout.has_window_table ? batch.num_sequences : 0;
    const std::vector<int32_t> numbers(1000), of_windows(1000);
    batch.token_ids = batch.positions = batch.slots = batch.query_start = batch.context_len =
        batch.block_table = numbers.data();
    batch.window_slots = of_windows.data();
    batch.state_slots = batch.logit_rows = numbers.data();
    text += fmt::format("a step of {} tokens\n", batch.num_tokens);
    backend.launch_step({.batch = batch}, [&](const ForwardBatch& given) {
      const Tensor logits = decoder.forward(given);
      return step.logit_rows > 2 ? decoder.logits(given, 2) : logits;
    });
    text += backend.take_recording();
  }
  return text;
}

/// FNV-1a.
uint64_t hash_of(std::string_view text) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : text)
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

std::string hashes_of(const std::filesystem::path& path) {
  const auto model = open_model(path.string());
  std::string line = path.stem().string();
  const std::pair<const char*, test::RecordedDevice> devices[] = {
      {"cpu", {}},
      {"gpu", {.activation_dtype = DType::bf16, .takes_norms = true}},
      {"fp8", {.activation_dtype = DType::bf16, .takes_norms = true, .takes_fp8 = true}}};
  for (const auto& [name, device] : devices) {
    for (int32_t ranks = 1; ranks <= 2; ++ranks) {
      std::string text;
      try {
        text = ranks == 1 ? record(*model, device) : record(ModelShard(*model, {1, ranks}), device);
      } catch (const Error&) {
        text = "refused";
      }
      line += fmt::format(" {}{}={:016x}", name, ranks == 1 ? "" : "/2", hash_of(text));
      if (const char* folder = std::getenv("MINFER_STEP_OPS"))
        std::ofstream(std::filesystem::path(folder) /
                      fmt::format("{}-{}-{}.txt", path.stem().string(), name, ranks))
            << text;
    }
  }
  return line + "\n";
}

TEST(StepOps, OfGoldenModelsAreAsTheyWere) {
  const std::filesystem::path folder = std::filesystem::path(source_path("")) / "tests/golden";
  std::vector<std::filesystem::path> models;
  for (const char* part : {"", "converted"}) {
    for (const auto& entry : std::filesystem::directory_iterator(folder / part)) {
      if (entry.path().extension() == ".gguf") models.push_back(entry.path());
    }
  }
  std::ranges::sort(models);
  std::string found;
  for (const auto& model : models)
    found += hashes_of(model);
  const std::filesystem::path kept = folder / "step_ops.txt";
  if (std::getenv("MINFER_UPDATE_GOLDEN") != nullptr) std::ofstream(kept) << found;
  std::ifstream file(kept);
  std::string expected(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(found, expected)
      << "MINFER_STEP_OPS=FOLDER writes the texts of this and of an older commit, to be compared";
}

}  // namespace
}  // namespace minfer
