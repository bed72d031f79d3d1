#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include <fmt/ranges.h>
#include <sys/mman.h>

#include "kernels/base/thread_pool.h"
#include "kernels/half.h"
#include "models/decoder/weights/model_source.h"
#include "models/decoder/weights/model_tensors.h"
#include "models/decoder/weights/synthetic_shapes.h"

namespace minfer {
namespace {

using synthetic::Shape;
using synthetic::TypeMix;

/// All layers of a model share the host memory of their experts, which else would be more than most hosts have: mixtral-8x7b's 93 GB
/// of bf16 become 6. Each layer's experts begin this many rows later, so no two layers compute the same. A GPU has a copy for each layer,
/// as of any model; where weights are used in place, as by the CPU backend, the caches see one layer's bytes.
constexpr int64_t kRowsToNextLayer = 17;

/// For embeddings of models with experts: large beside the layers' additions, so that a prompt's tokens stay different and choose different
/// experts, as they do in trained models. With small ones attention's mean of all tokens is most of each: 32 tokens of a prompt chose 23
/// of qwen3-30b-a3b's 128 experts a layer, where choices at random make 112.
constexpr float kEmbeddingDeviation = 10.0f;

/// Scales the residual stream behind each layer. It is not 1, since that would cost nothing.
constexpr float kLayerScale = 0.875f;

/// A block's f16 fields and their size relative to the block's scale; everything else in a block is random bits. The factors centre the
/// values, and `spread` is the standard deviation of a value in units of the scale.
struct BlockScales {
  DType dtype;
  float spread;
  std::array<std::pair<int, float>, 2> fields;  ///< (byte offset, factor); factor 0: no field
};
constexpr std::array<BlockScales, 22> kBlockScales{{
    {DType::q4_0, 4.6f, {{{0, 1.0f}, {0, 0.0f}}}},      {DType::q4_1, 4.6f, {{{0, 1.0f}, {2, -7.5f}}}},
    {DType::q5_0, 9.2f, {{{0, 1.0f}, {0, 0.0f}}}},      {DType::q5_1, 9.2f, {{{0, 1.0f}, {2, -15.5f}}}},
    {DType::q8_0, 74.0f, {{{0, 1.0f}, {0, 0.0f}}}},     {DType::q2_k, 14.0f, {{{80, 1.0f}, {82, 1.5f}}}},
    {DType::q3_k, 42.0f, {{{108, 1.0f}, {0, 0.0f}}}},   {DType::q4_k, 240.0f, {{{0, 1.0f}, {2, 7.5f}}}},
    {DType::q5_k, 470.0f, {{{0, 1.0f}, {2, 15.5f}}}},   {DType::q6_k, 1370.0f, {{{208, 1.0f}, {0, 0.0f}}}},
    {DType::iq4_nl, 65.0f, {{{0, 1.0f}, {0, 0.0f}}}},   {DType::iq4_xs, 1200.0f, {{{0, 1.0f}, {0, 0.0f}}}},
    {DType::mxfp4, 2.9f, {{{0, 0.0f}, {0, 0.0f}}}},     {DType::tq1_0, 0.82f, {{{52, 1.0f}, {0, 0.0f}}}},
    {DType::tq2_0, 0.71f, {{{64, 1.0f}, {0, 0.0f}}}},   {DType::iq2_xxs, 53.0f, {{{0, 1.0f}, {0, 0.0f}}}},
    {DType::iq2_xs, 56.0f, {{{0, 1.0f}, {0, 0.0f}}}},   {DType::iq2_s, 56.0f, {{{0, 1.0f}, {0, 0.0f}}}},
    {DType::iq3_xxs, 142.0f, {{{0, 1.0f}, {0, 0.0f}}}}, {DType::iq3_s, 140.0f, {{{0, 1.0f}, {0, 0.0f}}}},
    {DType::iq1_s, 7.2f, {{{0, 1.0f}, {0, 0.0f}}}},     {DType::iq1_m, 7.2f, {{{0, 0.0f}, {0, 0.0f}}}},
}};

/// Counter-based random bits (splitmix64 by Steele et al.): element i needs no state, so threads share nothing.
uint64_t random_bits(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// Uniform in [-1, 1).
float random_unit(uint64_t seed, uint64_t index) {
  return static_cast<float>(static_cast<double>(random_bits(seed, index) >> 11) * 0x1p-52 - 1.0);
}

template <class Convert>
void fill_plain(void* data, IndexRange elements, uint64_t seed, float amplitude, Convert convert) {
  auto* out = static_cast<decltype(convert(0.0f))*>(data);
  for (int64_t i = elements.begin; i < elements.end; ++i)
    out[i] = convert(amplitude * random_unit(seed, static_cast<uint64_t>(i)));
}

/// Clears the largest of tq2_0's four values, which is never written: it has no negative counterpart.
void clear_fours(std::byte* block) {
  for (int i = 0; i < 64; ++i)
    block[i] &= ~((block[i] & block[i] << 1) & std::byte{0xaa});
}

/// In pieces of four bits, as iq1_m has it.
void put_half_of_iq1_m(std::byte* block, uint16_t bits) {
  for (int i = 0; i < 4; ++i) {
    std::byte& byte = block[49 + 2 * i];
    byte = (byte & std::byte{15}) | std::byte(bits >> 4 * i & 15) << 4;
  }
}

void fill_blocks(std::byte* data, DType dtype, IndexRange blocks, uint64_t seed, float deviation) {
  const BlockScales& scales = *std::ranges::find(kBlockScales, dtype, &BlockScales::dtype);
  const uint32_t block_bytes = traits(dtype).block_bytes;
  const uint64_t words = block_bytes / 8 + 2;
  for (int64_t block = blocks.begin; block < blocks.end; ++block) {
    std::byte* out = data + block * block_bytes;
    const uint64_t first = static_cast<uint64_t>(block) * words;
    for (uint32_t at = 0; at < block_bytes; at += 8) {
      const uint64_t bits = random_bits(seed, first + at / 8);
      std::memcpy(out + at, &bits, std::min<size_t>(8, block_bytes - at));
    }
    const float scale = deviation / scales.spread * (1.0f + 0.5f * random_unit(seed, first + words - 1));
    if (dtype == DType::mxfp4) {  // a power of two
      const auto exponent = static_cast<uint8_t>(127 + std::lround(std::log2(scale)));
      std::memcpy(out, &exponent, sizeof exponent);
    }
    if (dtype == DType::tq2_0) clear_fours(out);
    if (dtype == DType::iq1_m) put_half_of_iq1_m(out, f32_to_f16(scale));
    for (const auto& [offset, factor] : scales.fields) {
      if (factor == 0.0f) continue;
      const uint16_t half = f32_to_f16(scale * factor);
      std::memcpy(out + offset, &half, sizeof half);
    }
  }
}

/// Fills the blocks `blocks` of the tensor at `data`.
void fill_random(const HostTensor& tensor, std::byte* data, uint64_t seed, float deviation,
                 IndexRange blocks) {
  const float amplitude = deviation * std::sqrt(3.0f);
  switch (tensor.dtype) {
    case DType::f32:
      fill_plain(data, blocks, seed, amplitude, [](float v) { return v; });
      break;
    case DType::f16:
      fill_plain(data, blocks, seed, amplitude, f32_to_f16);
      break;
    case DType::bf16:
      fill_plain(data, blocks, seed, amplitude, f32_to_bf16);
      break;
    default:
      fill_blocks(data, tensor.dtype, blocks, seed, deviation);
  }
}

/// The same, all of it.
void fill_random(const HostTensor& tensor, std::byte* data, uint64_t seed, float deviation,
                 ThreadPool& pool) {
  constexpr int64_t kBlocksOfPiece = 1 << 14;
  const int64_t blocks = tensor.count * tensor.rows * tensor.cols / traits(tensor.dtype).block_elements;
  const int64_t pieces = (blocks + kBlocksOfPiece - 1) / kBlocksOfPiece;
  pool.parallel_for(pieces, [&](int64_t piece, int32_t) {
    fill_random(tensor, data, seed, deviation, part_of(blocks, piece, pieces));
  });
}

/// llama3 scaling (Llama 3.1 model card): frequencies whose wavelength exceeds the original context are divided by the factor, short ones
/// kept, with a smooth passage between; low_freq_factor 1, high_freq_factor 4, original context 8,192.
std::vector<float> llama3_frequency_factors(float base, int32_t rotary_size, float factor) {
  constexpr double kOriginalContext = 8192.0, kLow = 1.0, kHigh = 4.0;
  std::vector<float> factors;
  for (int32_t pair = 0; pair < rotary_size / 2; ++pair) {
    const double wavelength = 2.0 * M_PI * std::pow(static_cast<double>(base), 2.0 * pair / rotary_size);
    const double rotations = kOriginalContext / wavelength;
    const double smooth = std::clamp((rotations - kLow) / (kHigh - kLow), 0.0, 1.0);
    factors.push_back(static_cast<float>(1.0 / ((1.0 - smooth) / factor + smooth)));
  }
  return factors;
}

/// One mapping for all tensors, in huge pages where the system gives them, so that streaming it costs few page walks.
class Arena {
 public:
  explicit Arena(size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) fail("cannot map {} bytes for a synthetic model", bytes_);
    madvise(data_, bytes_, MADV_HUGEPAGE);
  }
  ~Arena() { munmap(data_, bytes_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  std::byte* at(size_t offset) const { return static_cast<std::byte*>(data_) + offset; }

 private:
  size_t bytes_;
  void* data_;
};

/// Lists the tensors that a family's file has, in the types of a mix.
class TensorList final : private ModelTensors {
 public:
  TensorList(const Shape& shape, const TypeMix& mix, const ModelConfig& config)
      : ModelTensors(config, config.name), shape_(shape), mix_(mix) {}

  std::vector<HostTensor> make() {
    ModelWeights unused;
    take_all(unused);
    return std::move(tensors_);
  }

 private:
  bool has(const std::string& tensor) const override {
    if (tensor == "output.weight") return !shape_.tied;
    if (tensor == "rope_freqs.weight") return shape_.llama3_factor > 0.0f;
    if (tensor.ends_with("layer_output_scale.weight")) return true;
    const bool is_qkv =
        tensor.ends_with("attn_q.bias") || tensor.ends_with("attn_k.bias") || tensor.ends_with("attn_v.bias");
    if (is_qkv) return shape_.options.qkv_bias;
    return shape_.options.biases && tensor.ends_with(".bias") && !tensor.ends_with("exp_probs_b.bias");
  }

  Weight take(const std::string& tensor, const TensorShape& shape, Form form) override {
    const DType dtype = form == Form::matrix ? type_of(tensor) : DType::f32;
    tensors_.push_back({.name = tensor,
                        .dtype = synthetic::type_for_columns(dtype, shape.cols.size),
                        .count = shape.count.size,
                        .rows = shape.rows.size,
                        .cols = shape.cols.size});
    return {};
  }

  std::vector<float> numbers(const std::string& tensor, Dimension size, bool) override {
    if (has(tensor)) take(tensor, {{1}, size}, Form::vector);
    return {};
  }

  DType type_of(std::string_view matrix) const {
    constexpr std::array<std::string_view, 5> kHeavy = {"attn_v.weight", "attn_v_b.weight", "ffn_down.weight",
                                                        "ffn_down_exps.weight", "ffn_down_shexp.weight"};
    const int32_t layer = layer_of_tensor(matrix);
    if (matrix.find("altup") != std::string_view::npos || matrix.find("laurel") != std::string_view::npos)
      return DType::f16;  // llama.cpp quantises none of them
    if (layer < 0) return shape_.tied || matrix == "output.weight" ? mix_.more_bits : mix_.base;
    const std::string_view part = part_of_tensor(matrix);
    if (part.starts_with("ffn_gate_inp")) return DType::f32;
    return std::ranges::count(kHeavy, part) > 0 && more_bits(layer) ? mix_.more_bits : mix_.base;
  }

  /// llama.cpp's rule for the layers that get more bits in its *_K_M mixes.
  bool more_bits(int32_t layer) const {
    const int32_t n = config_.num_layers;
    return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
  }

  const Shape& shape_;
  const TypeMix& mix_;
  std::vector<HostTensor> tensors_;
};

using TensorFilter = std::function<bool(std::string_view)>;

class SyntheticModel : public ModelSource {
 public:
  SyntheticModel(const Shape& shape, const TypeMix& mix, const std::string& spec, const TensorFilter& wanted,
                 bool draft_layer)
      : ModelSource(spec, synthetic::config_of(shape, spec)), shape_(shape), mix_(mix) {
    if (draft_layer) {
      config_.has_draft_layer = true;
      config_.layers.push_back({.has_experts = config_.is_moe()});
    }
    for (HostTensor& tensor : TensorList(shape_, mix_, config_).make())
      add_tensor(std::move(tensor));
    fill(wanted);
  }

  std::unique_ptr<Tokenizer> make_tokenizer() const override {
    return make_byte_tokenizer(config_.vocab_size);
  }
  void release_data() override {
    ModelSource::release_data();
    arena_.reset();
  }

 private:
  /// Random rows that a tensor has by itself, or that the experts of one kind and type of all layers share.
  struct Rows {
    HostTensor tensor;  ///< all rows as one matrix, named as the first tensor
    bool is_wanted = false;
    size_t offset = 0;  ///< in the arena
  };
  struct Place {
    size_t rows;  ///< index
    int64_t first_row;
  };

  /// Where each tensor lies. Does not depend on which of them are wanted: the same name is to give the same weights.
  std::vector<Place> places(std::vector<Rows>& rows) const {
    std::vector<Place> places;
    std::unordered_map<std::string, size_t> of_experts;
    for (const HostTensor& tensor : tensors_) {
      Place place{rows.size(), 0};
      const size_t part = tensor.name.find("ffn_");
      if (tensor.count > 1 && part != std::string::npos) {
        const std::string kind = fmt::format("{} {}", tensor.name.substr(part), minfer::name(tensor.dtype));
        place.rows = of_experts.try_emplace(kind, place.rows).first->second;
      }
      if (place.rows == rows.size()) {
        rows.push_back({.tensor = tensor});
        rows.back().tensor.count = 1;
        rows.back().tensor.rows = tensor.count * tensor.rows;
      } else {
        HostTensor& all = rows[place.rows].tensor;
        all.rows += kRowsToNextLayer;
        place.first_row = all.rows - tensor.count * tensor.rows;
      }
      places.push_back(place);
    }
    return places;
  }

  void fill(const TensorFilter& wanted) {
    std::vector<Rows> all_rows;
    const std::vector<Place> place_of = places(all_rows);
    const auto is_wanted = [&](const HostTensor& tensor) {
      return !wanted || tensor.bytes() < size_t{1} << 18 || wanted(tensor.name);
    };
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (is_wanted(tensors_[i])) all_rows[place_of[i].rows].is_wanted = true;
    }
    size_t total = 0;
    for (Rows& rows : all_rows) {
      rows.offset = total;
      if (rows.is_wanted) total += (rows.tensor.bytes() + 63) / 64 * 64;
    }
    arena_ = std::make_unique<Arena>(std::max<size_t>(total, 1));
    ThreadPool pool(num_cores());
    for (const Rows& rows : all_rows) {
      if (rows.is_wanted) fill(rows.tensor, arena_->at(rows.offset), pool);
    }
    for (size_t i = 0; i < tensors_.size(); ++i) {
      HostTensor& tensor = tensors_[i];
      if (!is_wanted(tensor)) continue;
      const Place& place = place_of[i];
      tensor.data = arena_->at(all_rows[place.rows].offset +
                               static_cast<size_t>(place.first_row) * row_bytes(tensor.dtype, tensor.cols));
    }
  }

  void fill(const HostTensor& tensor, std::byte* data, ThreadPool& pool) const {
    if (tensor.name == "rope_freqs.weight") {
      const std::vector<float> factors =
          llama3_frequency_factors(shape_.rope_base, config_.rotary_size, shape_.llama3_factor);
      std::memcpy(data, factors.data(), tensor.bytes());
      return;
    }
    if (tensor.name.ends_with("layer_output_scale.weight")) {
      std::memcpy(data, &kLayerScale, sizeof kLayerScale);
      return;
    }
    const bool is_embedding = config_.is_moe() && tensor.name == "token_embd.weight";
    const float deviation =
        is_embedding ? kEmbeddingDeviation : 1.0f / std::sqrt(static_cast<float>(tensor.cols));
    fill_random(tensor, data, random_bits(0x6d696e666572u, index_.at(tensor.name)), deviation, pool);
    if ((tensor.rows != 1 && tensor.cols != 1) || tensor.dtype != DType::f32) return;
    const std::span<float> values(reinterpret_cast<float*>(data),
                                  static_cast<size_t>(tensor.rows * tensor.cols));
    const float deviation_of_head = std::sqrt(static_cast<float>(tensor.cols));
    for (float& value : values) {
      if (tensor.name.ends_with("norm.weight")) value += 1.0f;  // as those of trained models
      // Where scores are not scaled, trained norms of queries do it.
      if (tensor.name.ends_with("attn_q_norm.weight") && config_.architecture.attention_scale > 0.0f)
        value /= deviation_of_head;
      if (tensor.name.ends_with(".ssm_a")) value = -std::abs(value);  // decays of delta nets
    }
  }

  Shape shape_;
  TypeMix mix_;
  std::unique_ptr<Arena> arena_;
};

}  // namespace

std::unique_ptr<ModelSource> make_synthetic_model(std::string_view spec, const TensorFilter& wanted,
                                                  bool draft_layer) {
  const auto [shape, mix] = synthetic::parse_spec(spec);
  return std::make_unique<SyntheticModel>(shape, mix, std::string(spec), wanted, draft_layer);
}

}  // namespace minfer
