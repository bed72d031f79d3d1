#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/ops.h"

// Residual streams of a token, mixed by numbers of its own (MixStreamsArgs). Sums over a row are double.
namespace minfer::cpu {
namespace {

using Coefs = std::array<float, kMaxStreams * kMaxStreams>;

void check(const MixStreamsArgs& args) {
  const int64_t rows = args.streams.rows, count = args.x.cols > 0 ? args.count() : 0;
  if (count < 2 || count > kMaxStreams) fail("mix_streams: {} streams, expected 2 to {}", count, kMaxStreams);
  check_f32("mix_streams: streams", args.streams, rows, count * args.x.cols);
  check_f32("mix_streams: x", args.x, rows, args.x.cols);
  if (args.kind == MixStreamsArgs::Kind::match) return;
  const bool predicts = args.kind == MixStreamsArgs::Kind::predict;
  check_f32("mix_streams: routed", args.routed, rows, count);
  check_vector("mix_streams: coefs", args.coefs, count, predicts ? count * count : count);
  if (!predicts) check_vector("mix_streams: weight", args.weight, args.x.cols);
}

Coefs coefs_of(const MixStreamsArgs& args, int64_t t) {
  const auto* weight = static_cast<const float*>(args.coefs.data);
  const float* routed = args.routed.f32_row(t);
  Coefs coefs = {};
  for (int64_t i = 0; i < args.coefs.rows; ++i) {
    double sum = 0.0;
    for (int64_t j = 0; j < args.coefs.cols; ++j)
      sum += static_cast<double>(*weight++) * std::tanh(static_cast<double>(args.scale * routed[j]));
    coefs[static_cast<size_t>(i)] = static_cast<float>(sum);
  }
  return coefs;
}

double mean_square(const float* row, int64_t size) {
  double sum = 0.0;
  for (int64_t i = 0; i < size; ++i)
    sum += static_cast<double>(row[i]) * static_cast<double>(row[i]);
  return sum / static_cast<double>(size);
}

void predict(const Coefs& coefs, int64_t count, int64_t cols, float* streams, float* x) {
  for (int64_t i = 0; i < cols; ++i) {
    std::array<float, kMaxStreams> before = {};
    for (int64_t k = 0; k < count; ++k)
      before[static_cast<size_t>(k)] = streams[k * cols + i];
    for (int64_t k = 0; k < count; ++k) {
      for (int64_t j = 0; j < count; ++j)
        streams[k * cols + i] += coefs[static_cast<size_t>(k * count + j)] * before[static_cast<size_t>(j)];
    }
    x[i] = streams[i];
  }
}

void correct(const Coefs& coefs, int64_t count, int64_t cols, const float* weight, float* streams, float* x) {
  for (int64_t i = 0; i < cols; ++i) {
    const float difference = x[i] - streams[i];
    for (int64_t k = 0; k < count; ++k)
      streams[k * cols + i] += (1.0f + coefs[static_cast<size_t>(k)]) * difference;
    x[i] = weight[i] * streams[i];
  }
}

void match(int64_t count, int64_t cols, float* streams, float* x) {
  const double first = mean_square(streams, cols);
  std::copy_n(streams, cols, x);
  for (int64_t k = 1; k < count; ++k) {
    float* stream = streams + k * cols;
    const double least = std::max(mean_square(stream, cols), static_cast<double>(kLeastMeanSquare));
    const auto scale = static_cast<float>(std::sqrt(first / least));
    for (int64_t i = 0; i < cols; ++i) {
      stream[i] *= scale;
      x[i] += stream[i];
    }
  }
  for (int64_t i = 0; i < cols; ++i)
    x[i] /= static_cast<float>(count);
}

}  // namespace

void mix_streams(const MixStreamsArgs& args, const OpContext& context) {
  check(args);
  const int64_t count = args.count(), cols = args.x.cols;
  for_each_row(args.streams, context, [&](int64_t t) {
    float *streams = args.streams.f32_row(t), *x = args.x.f32_row(t);
    switch (args.kind) {
      case MixStreamsArgs::Kind::predict:
        return predict(coefs_of(args, t), count, cols, streams, x);
      case MixStreamsArgs::Kind::correct:
        return correct(coefs_of(args, t), count, cols, static_cast<const float*>(args.weight.data), streams,
                       x);
      case MixStreamsArgs::Kind::match:
        return match(count, cols, streams, x);
    }
  });
}

}  // namespace minfer::cpu
