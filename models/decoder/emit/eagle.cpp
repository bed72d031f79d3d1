#include "models/decoder/emit/emitter.h"

// An EAGLE-3 head (Li et al. 2025, "EAGLE-3: Scaling up inference acceleration of large language models via training-time test",
// arXiv:2503.01840), a layer of its own sizes that predicts the token behind the next one. x is the model's residual stream:
//
//   g       = from_features(x in front of three of the model's layers, side by side)     a norm of these first, if the head has one
//   a       = [norm(embedding(token)) | norm(g of the position in front)]
//   layer:  y = g of the position in front (or its norm) + attention of a;  y += feed_forward(norm(y))
//   g       = y                              takes the place of the model's for the next draft
//   logits  = output(norm(y))                of the tokens that the head drafts; the others have none
//
// As in draft.cpp, the model's own steps write the keys and values of prompts and of tokens that stand. There is no g in front of the first
// token: its key is hidden from the others (read_eagle_head()).
namespace minfer {
namespace {

struct EagleInput {
  Tensor joined;    ///< a
  Tensor previous;  ///< g of the position in front, f32
};

/// `g`: of the step's tokens; null: those in front of all tokens are kept ones.
EagleInput emit_eagle_input(Emitter& head, const EagleHead& of, const EagleWeights& w, const Tensor& g) {
  const int64_t size = head.config.hidden_size;
  const Tensor embedded = head.f32(size), previous = head.f32(size), joined = head.activations(2 * size);
  const auto norm = [&](const char* name, const Tensor& x, const Weight& weight, int64_t first) {
    head.add(name, NormArgs{.x = x,
                            .weight = weight,
                            .eps = head.config.norm_eps,
                            .out = Emitter::columns(joined, first, size)});
  };
  head.add("draft_embed",
           EmbedArgs{.table = w.model.embedding, .vocab_size = of.target_vocab_size, .out = embedded});
  norm("draft_embedding_norm", embedded, head.layer_weights().attn_norm, 0);
  head.add("draft_previous", HiddenRowsArgs{.x = g, .out = previous, .ring = head.memory.hidden});
  norm("draft_hidden_norm", previous, w.hidden_norm, size);
  return {joined, previous};
}

}  // namespace

void emit_eagle_feature(Emitter& e, const Tensor& x) {
  const EagleHead& head = *e.config.eagle;
  const auto count = static_cast<int64_t>(head.target_layers.size());
  if (e.features.value < 0)
    e.features = e.value(head.norms_features ? DType::f32 : e.activation, RowsOf::token, count * x.cols);
  for (int64_t i = 0; i < count; ++i) {
    if (head.target_layers[static_cast<size_t>(i)] != e.layer) continue;
    const Tensor part = Emitter::columns(e.features, i * x.cols, x.cols);
    e.add("draft_feature", NormArgs{.x = x, .kind = NormKind::none, .out = part});
  }
}

void emit_eagle_keys(Emitter& e, const Tensor& x) {
  emit_eagle_feature(e, x);
  const EagleWeights& w = *e.weights.eagle;
  e.with_eagle([&](Emitter& head) {
    const Tensor normed =
        w.features_norm ? head.norm("draft_features_norm", e.features, w.features_norm, {}) : e.features;
    const Tensor g = head.f32(head.config.hidden_size);
    head.add("draft_from_features", LinearArgs{.x = normed, .weights = {&w.from_features, 1}, .out = g});
    const Tensor joined = emit_eagle_input(head, *e.config.eagle, w, g).joined;
    emit_draft_state(head, g);
    head.only_keys = true;
    emit_attention(head, joined);
  });
}

void emit_eagle_draft(Emitter& e) {
  const EagleHead& of = *e.config.eagle;
  const EagleWeights& w = *e.weights.eagle;
  e.with_eagle([&](Emitter& head) {
    const EagleInput input = emit_eagle_input(head, of, w, {});
    Tensor y = input.previous;
    if (of.norms_residual) {
      y = head.f32(y.cols);
      head.add("draft_residual_norm",
               NormArgs{.x = input.previous, .weight = w.hidden_norm, .eps = head.config.norm_eps, .out = y});
    }
    emit_attention_block(head, y, input.joined);
    emit_feed_forward_block(head, y, {});
    emit_draft_state(head, y);
    head.in_head = true;
    emit_head(head, y, w.model.output_norm, w.model.output);
    if (!w.columns) return;
    const Tensor all = head.value(DType::f32, RowsOf::logit_row, of.target_vocab_size);
    head.add("draft_logits", SpreadColumnsArgs{.x = head.program.logits, .columns = w.columns, .out = all});
    head.program.logits = all;
  });
}

}  // namespace minfer
