#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/reference/streams.h"
#include "tests/support/random_data.h"

/// Random inputs of mix_streams(), and what it gives by them in double precision.
namespace minfer::test {

struct StreamMix {
  StreamMix(MixStreamsArgs::Kind of, int64_t num_streams, int64_t num_cols, int64_t num_rows)
      : kind(of),
        count(num_streams),
        cols(num_cols),
        rows(num_rows),
        streams(normal_values(rows * count * cols, 1)),
        x(normal_values(rows * cols, 2)),
        routed(normal_values(rows * count, 3, 1.0f / kScale)),
        coefs(normal_values(num_coefs() * count, 4)),
        weight(normal_values(cols, 5)) {
    // The second stream of the first token is so small that it is not brought to the first one's magnitude.
    for (int64_t i = 0; i < cols; ++i)
      streams[static_cast<size_t>(cols + i)] *= 1e-3f;
  }
  int64_t num_coefs() const { return kind == MixStreamsArgs::Kind::predict ? count * count : count; }
  bool routes() const { return kind != MixStreamsArgs::Kind::match; }
  bool corrects() const { return kind == MixStreamsArgs::Kind::correct; }
  std::string text() const {
    return fmt::format("kind {}, {} tokens of {} x {}", static_cast<int>(kind), rows, count, cols);
  }

  /// The streams, and x behind them.
  std::vector<double> expected() const {
    reference::Matrix mixed = reference::to_matrix(streams, rows, count * cols),
                      out = reference::to_matrix(x, rows, cols);
    reference::mix_streams(kind, mixed, reference::to_matrix(routed, rows, count),
                           static_cast<double>(kScale), coefs, weight, out);
    mixed.data.insert(mixed.data.end(), out.data.begin(), out.data.end());
    return mixed.data;
  }

  static constexpr float kScale = 1.0f / 64;
  MixStreamsArgs::Kind kind;
  int64_t count, cols, rows;
  std::vector<float> streams, x, routed, coefs, weight;
};

/// Columns below, at and above a warp, a vector, a block of a GPU.
inline std::vector<StreamMix> stream_mixes() {
  std::vector<StreamMix> mixes;
  using Kind = MixStreamsArgs::Kind;
  for (const Kind kind : {Kind::predict, Kind::correct, Kind::match}) {
    for (const int64_t count : {2, 3, 4}) {
      for (const int64_t cols : {1, 31, 32, 70, 1024, 2048, 2051}) {
        for (const int64_t rows : {1, 5})
          mixes.emplace_back(kind, count, cols, rows);
      }
    }
  }
  return mixes;
}

}  // namespace minfer::test
