#include <cmath>

#include "models/decoder/emit/emitter.h"

// Several residual streams (Gemma 3n's AltUp: Baykal et al. 2023, "Alternating updates for efficient transformers") and LAuReL (Menghani et
// al. 2024, "LAuReL: Learned augmented residual layer"). x is the stream that a layer computes; MixStreamsArgs has the formulas.
//
//   streams = [x | x A_k at the magnitude of x]         from the embedding
//   predict   by tanh(norm(s[0]) R / hidden)            in front of a layer
//   laurel    x = (x + n + norm(n L Q)) / sqrt(2)       behind attention, whose norm gave n
//   correct   by tanh(norm(x) R / hidden)               behind the feed-forward block
//   x       = mean of s[0] and s[k] B_k at its magnitude, in front of the last norm
namespace minfer {
namespace {

/// The products with the layer's router that decide how its streams mix.
Tensor emit_router(Emitter& e, const char* norm, const char* product, const Tensor& x) {
  const StreamWeights& w = e.layer_weights().streams;
  const Tensor normed = e.activations(x.cols), routed = e.f32(e.config.num_streams);
  e.add(norm, NormArgs{.x = x, .weight = w.router_norm, .eps = e.config.norm_eps, .out = normed});
  e.add(product, LinearArgs{.x = normed, .weights = {&w.router, 1}, .out = routed});
  return routed;
}

}  // namespace

Tensor emit_streams(Emitter& e, const Tensor& x) {
  const Tensor streams = e.f32(e.config.num_streams * x.cols), mean = e.f32(x.cols);
  e.add("altup_first", NormArgs{.x = x, .kind = NormKind::none, .out = Emitter::columns(streams, 0, x.cols)});
  e.add("altup_proj", LinearArgs{.x = e.norm("altup_proj_input", x, {}, {}),
                                 .weights = e.weights.to_streams,
                                 .out = Emitter::columns(streams, x.cols, streams.cols - x.cols)});
  e.add("altup_match", MixStreamsArgs{.kind = MixStreamsArgs::Kind::match, .streams = streams, .x = mean});
  return streams;
}

void emit_predict(Emitter& e, const Tensor& streams, const Tensor& x) {
  const Tensor first = Emitter::columns(streams, 0, x.cols);
  e.add("altup_predict", MixStreamsArgs{.kind = MixStreamsArgs::Kind::predict,
                                        .streams = streams,
                                        .routed = emit_router(e, "predict_norm", "predict_router", first),
                                        .scale = 1.0f / static_cast<float>(x.cols),
                                        .coefs = e.layer_weights().streams.predict,
                                        .x = x});
}

void emit_laurel(Emitter& e, const Tensor& x, const Tensor& normed) {
  const StreamWeights& w = e.layer_weights().streams;
  const Tensor ranked = e.activations(e.config.laurel_rank), out = e.f32(x.cols);
  e.add("laurel_in", LinearArgs{.x = normed, .weights = {&w.laurel_in, 1}, .out = ranked});
  e.add("laurel_out", LinearArgs{.x = ranked, .weights = {&w.laurel_out, 1}, .out = out});
  e.add_normed("laurel_norm", out, w.laurel_norm, x);
  e.add_normed("laurel_add", normed, {}, x);
  e.add("laurel_scale", NormArgs{.x = x, .kind = NormKind::none, .scale = std::sqrt(0.5f), .out = x});
}

void emit_correct(Emitter& e, const Tensor& streams, const Tensor& x) {
  const StreamWeights& w = e.layer_weights().streams;
  e.add("altup_correct", MixStreamsArgs{.kind = MixStreamsArgs::Kind::correct,
                                        .streams = streams,
                                        .routed = emit_router(e, "correct_norm", "correct_router", x),
                                        .scale = 1.0f / static_cast<float>(x.cols),
                                        .coefs = w.correct,
                                        .weight = w.scale,
                                        .x = x});
}

void emit_merge(Emitter& e, const Tensor& streams, const Tensor& x) {
  const int64_t others = streams.cols - x.cols;
  const Tensor inputs = e.activations(others);
  e.add("altup_unembd_input",
        NormArgs{.x = Emitter::columns(streams, x.cols, others), .kind = NormKind::none, .out = inputs});
  for (int64_t first = 0; first < others; first += x.cols) {
    const Weight& weight = e.weights.from_streams[static_cast<size_t>(first / x.cols)];
    e.add("altup_unembd", LinearArgs{.x = Emitter::columns(inputs, first, x.cols),
                                     .weights = {&weight, 1},
                                     .out = Emitter::columns(streams, x.cols + first, x.cols)});
  }
  e.add("altup_merge", MixStreamsArgs{.kind = MixStreamsArgs::Kind::match, .streams = streams, .x = x});
}

}  // namespace minfer
