#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/op_args.h"

namespace minfer {

struct ModelConfig;

/// Says if the feed-forward layers of a family choose among experts.
enum class ExpertLayers : uint8_t { never, if_counted, always };

/// The range over which q and k are normalised before the rotation. Heads use the family's NormKind; a layer norm has weights per head.
/// `rotated_head`: a head without weights, in layers with positions. `head_if_there`: if the file has the tensors (never in ModelConfig).
enum class QkNorm : uint8_t { none, head, row, rotated_head, head_if_there };

/// The place of the norms in a layer's blocks; f is attention or feed-forward.
enum class NormPlacement : uint8_t {
  before,  ///< x += f(norm(x))
  after,   ///< x += norm(f(x))
  both,    ///< x += norm(f(norm(x)))
};

/// Says if x += attention(n) + feed_forward(n), with the layer's one norm n. `if_no_ffn_norm`: for files without the other norm's tensor.
enum class ParallelBlocks : uint8_t { never, if_no_ffn_norm, always };

/// The traits by which model families differ in the one generic decoder. A new family is a row of the table in architecture.cpp.
struct Architecture {
  std::string_view name;         ///< general.architecture, also the prefix of its keys
  bool joins_embedding = false;  ///< attention takes rows of [embedding | hidden state] (EAGLE-3)
  RopePairing rope_pairing = RopePairing::halves;
  bool halves_with_sections = false;  ///< pairs of files with rope.dimension_sections (GLM-4.1V)
  QkNorm qk_norm = QkNorm::none;
  bool norms_last = false;       ///< those of q and k stand behind the rotation (Hunyuan)
  bool norms_values = false;     ///< RMS norms without weights, of each head
  bool may_lack_values = false;  ///< without attn_v, keys before norm and rotation are the values
  /// Layers may have inputs of their own by the token, read the keys and values of earlier ones, and differ in their feed-forward size; a
  /// layer with experts has a dense block beside them (Gemma 4).
  bool has_layer_inputs = false;
  /// ModelConfig::num_streams residual streams, LAuReL beside attention, and layers with LayerConfig::gate_cut (Gemma 3n).
  bool has_streams = false;
  bool scales_layers = false;    ///< the residual stream behind a layer, if the file has layer_output_scale
  float attention_scale = 0.0f;  ///< if the file says nothing; 0: the inverse root of the head size
  /// Latent attention (LatentAttention). Its norms are part of it, not `qk_norm`.
  bool has_latent_attention = false;
  bool has_indexer = false;  ///< ModelConfig::indexer
  RopePairing indexer_pairing = RopePairing::halves;
  /// A file whose context is at least this, and that does not say it, has indexers in layers 0, 1, 2, 6, 10 ... alone; 0: in all layers.
  int32_t sparse_indexer_context = 0;
  /// If the file says nothing: every n-th layer attends and the others are gated delta nets; 0: all attend.
  int32_t delta_period = 0;
  bool has_short_convs = false;  ///< layers without KV heads are short convolutions
  bool has_mamba = false;        ///< layers without KV heads are Mamba-2
  bool has_kimi_delta = false;   ///< layers without KV heads are Kimi delta attention
  /// A layer is one block: Mamba-2, attention or, where its feed_forward_length is not 0, a feed-forward block (Nemotron-H).
  bool has_single_blocks = false;
  bool values_in_turn = false;  ///< DeltaNetShape::in_turn, and beta and alpha are products of their own
  bool gates_heads = false;     ///< a sigmoid of rows behind each head of q multiplies attention's output
  bool qkv_bias = false;        ///< biases of q, k and v are required; else they are taken if present
  bool attn_sinks = false;      ///< see AttentionArgs::sinks
  ExpertLayers expert_layers = ExpertLayers::never;
  std::string_view expert_ffn_key = "expert_feed_forward_length";  ///< key of an expert's ffn_size
  ExpertChoice expert_choice = {};                                 ///< if the file says nothing
  bool choice_bias = false;           ///< MoeRouteArgs::bias is required; else it is optional
  bool shared_gate = false;           ///< the sigmoid of a product with a token weights its shared experts
  int32_t shared_experts = 0;         ///< if the file says nothing
  bool averages_shared = false;       ///< a block is half the sum of its experts and the shared ones (Cohere)
  bool expert_weights_input = false;  ///< an expert's weight multiplies its input, not its output
  bool biases_softmax = false;  ///< a bias of the choice does not say that scores are sigmoids (ERNIE 4.5)

  NormKind norm = NormKind::rms;
  bool rms_if_stated = false;  ///< a file with the epsilon of RMS norms has those instead (Cohere's experts)
  NormPlacement norm_placement = NormPlacement::before;
  ParallelBlocks parallel_blocks = ParallelBlocks::never;
  std::string_view ffn_norm_tensor = "ffn_norm";
  std::string_view output_norm_tensor = "output_norm";

  bool has_gate = true;                                       ///< down(f(gate x) up x), else down(f(up x))
  GateActivation gate = GateActivation::silu;                 ///< with a gate
  Activation::Kind activation = Activation::Kind::gelu_tanh;  ///< without

  /// attention.sliding_window is a window of the trained model, in all layers but every n-th, or in all layers with 1. 0: the key means
  /// nothing, as in files whose converters copy it from configurations with use_sliding_window: false.
  int32_t window_period = 0;
  bool needs_window = false;  ///< attention.sliding_window must be there
  int32_t usual_window = 0;   ///< where it is not
  bool has_chunks = false;    ///< AttentionWindow::chunked for layers with a window
  /// Layers with a window have their own unscaled rotary table. It has this base; 0: the other layers' base.
  bool own_window_rope = false;
  float window_rope_base = 0.0f;
  /// rope.scaling.attn_factor is YaRN's whole magnitude, in files of a converter without another key for it (OLMo 3); else it multiplies
  /// the formula's magnitude.
  bool states_magnitude = false;
  /// In a model with windows, layers without one have no positions (Command-R7B, Llama 4).
  bool no_rope_without_window = false;
  /// AttentionTemperature of layers without positions, if the file says nothing.
  float temperature_scale = 0.0f;
  int32_t temperature_length = 0;
  bool temperature_by_yarn =
      false;  ///< in all layers, from YaRN's original context on, if file or family has a scale (Ministral 3)
  int32_t no_rope_period = 0;       ///< every n-th layer has no positions (SmolLM3); 0: all have
  bool may_lack_positions = false;  ///< rope.scaling.finetuned = false means that no layer has any (Granite)

  bool divides_by_logit_scale = false;  ///< else logits are multiplied by it
  /// Sets the rest, which the table cannot express; null: nothing.
  void (*adjust)(ModelConfig& config) = nullptr;
};

std::span<const Architecture> known_architectures();
/// Throws FileError that names the unknown architecture and lists the known ones.
const Architecture& find_architecture(std::string_view name);

/// Applies the family to a model with known sizes, first rotary table and `norm_eps`. Sets its layers, the rotary table that windows
/// may have, and the scales. `has_window` [num_layers] selects the layers with `window` (0: none); if empty, the family
/// selects them.
void apply_family(ModelConfig& config, int32_t window, const std::vector<bool>& has_window = {});

/// All layers but every `period`-th one.
std::vector<bool> all_but_every(int32_t period, int32_t num_layers);

/// Makes the layers marked in `recurrent` [num_layers] gated delta nets. These have neither keys nor positions.
void set_delta_layers(ModelConfig& config, const std::vector<bool>& recurrent);

/// Makes the last `count` layers read the keys and values of the last layer before them that has a window as they do. Returns a layer for
/// which there is none; -1: all have one.
int32_t share_keys(ModelConfig& config, int32_t count);

}  // namespace minfer
