#include "models/decoder/emit/emitter.h"

// A model's own layer for drafts (multi-token prediction: DeepSeek-AI 2024, "DeepSeek-V3 technical report", section 2.2). It predicts the
// token behind the next one from what the model made of the position in front. h is a hidden state behind the last norm:
//
//   y       = from_embedding(norm(embedding(token))) + from_hidden(norm(h of the position in front))
//   layer(y): attention over the layer's own keys and values of all positions, feed-forward
//   h       = norm(y)                        takes the place of the model's for the next draft
//   logits  = output(h)
//
// The layer's keys and values of a prompt, and of tokens that stand, are written by the model's own steps (emit_draft_keys()), which have
// their hidden states. A step that checks drafts thereby replaces what the drafts' passes have written.
namespace minfer {
namespace {

/// y, f32. `hidden`: of the step's tokens; null: the hidden states in front of all tokens are kept ones.
Tensor emit_input(Emitter& e, const Tensor& hidden) {
  const DraftWeights& w = e.weights.draft;
  const Tensor embedded = e.f32(e.config.hidden_size), y = e.f32(e.config.hidden_size),
               previous = e.f32(e.config.hidden_size);
  e.add("draft_embed", EmbedArgs{.table = w.embedding,
                                 .vocab_size = e.config.vocab_size,
                                 .scale = e.config.embedding_scale,
                                 .out = embedded});
  const Tensor normed = e.norm("draft_embedding_norm", embedded, w.embedding_norm, {});
  e.add("draft_from_embedding", LinearArgs{.x = normed, .weights = {&w.from_embedding, 1}, .out = y});
  e.add("draft_previous", HiddenRowsArgs{.x = hidden, .out = previous, .ring = e.memory.hidden});
  const Tensor normed_hidden = e.norm("draft_hidden_norm", previous, w.hidden_norm, {});
  e.add("draft_from_hidden",
        LinearArgs{.x = normed_hidden, .weights = {&w.from_hidden, 1}, .out = y, .add_to_out = true});
  return y;
}

/// h of x, kept for the passes and steps behind it.
Tensor emit_hidden(Emitter& e, const Tensor& x, const Weight& norm) {
  const Tensor hidden = e.f32(x.cols);
  e.add("draft_hidden", NormArgs{.x = x, .weight = norm, .eps = e.config.norm_eps, .out = hidden});
  return hidden;
}

}  // namespace

void emit_draft_state(Emitter& e, const Tensor& hidden) {
  e.add("draft_keep", HiddenRowsArgs{.x = hidden, .ring = e.memory.hidden});
}

void emit_draft_keys(Emitter& e, const Tensor& x) {
  e.layer = e.config.num_layers;
  if (e.config.eagle) return emit_eagle_keys(e, x);
  const Tensor hidden = emit_hidden(e, x, e.weights.output_norm);
  const Tensor y = emit_input(e, hidden);
  emit_draft_state(e, hidden);
  const Tensor normed = e.norm("attn_norm", y, e.layer_weights().attn_norm, {});
  e.only_keys = true;
  e.config.is_latent() ? emit_latent_attention(e, normed) : emit_attention(e, normed);
  e.only_keys = false;
}

void emit_draft(Emitter& e) {
  if (e.config.eagle) return emit_eagle_draft(e);
  e.layer = e.config.num_layers;
  const Tensor y = emit_input(e, {});
  const Tensor normed = emit_attention_block(e, y);
  emit_feed_forward_block(e, y, normed);
  emit_draft_state(e, emit_hidden(e, y, e.weights.draft.output_norm));
  e.in_head = true;
  emit_head(e, y, e.weights.draft.output_norm, e.weights.draft.output);
}

}  // namespace minfer
