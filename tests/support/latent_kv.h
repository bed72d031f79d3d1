#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "kernels/op_args.h"
#include "tests/reference/ops.h"
#include "tests/support/random_data.h"

namespace minfer::test {

/// Sizes for a test of LatentKvWriteArgs, and the expected results of the op in double precision.
struct LatentKvCase {
  int32_t heads = 3;
  int32_t latent_size = 24;
  int32_t rotary_size = 8;
  int32_t other_size = 12;  ///< of a head of q, before its rotated elements
  RopePairing pairing = RopePairing::interleaved;
  DType kv = DType::f32;
  int32_t block_size = 16;
  bool scales_q = false;  ///< by position
  bool rotates = true;

  static constexpr float kEps = 1e-5f;
  static constexpr int32_t kPositions = 200;

  int32_t row_size() const { return latent_size + rotary_size; }
  int64_t q_cols() const { return int64_t{heads} * (other_size + rotary_size); }
  int64_t out_cols() const { return int64_t{heads} * row_size(); }
  std::vector<float> norm() const { return normal_values(latent_size, 11); }

  std::vector<float> angles() const {
    std::vector<float> cos_sin;
    for (int32_t p = 0; p < kPositions; ++p) {
      for (int32_t i = 0; i < rotary_size / 2; ++i) {
        const double angle = p * std::pow(10000.0, -2.0 * i / rotary_size);
        cos_sin.push_back(static_cast<float>(std::cos(angle)));
        cos_sin.push_back(static_cast<float>(std::sin(angle)));
      }
    }
    return cos_sin;
  }

  std::vector<float> q_scales() const { return normal_values(kPositions, 13); }
  double q_scale(int32_t position) const {
    return scales_q ? static_cast<double>(q_scales()[static_cast<size_t>(position)]) : 1.0;
  }

  std::vector<double> rotated(std::span<const float> elements, int32_t position) const {
    const std::vector<float> table = angles();
    std::vector<double> head(elements.begin(), elements.end());
    if (!rotates) return head;
    reference::rotate_head(head,
                           std::span(table).subspan(static_cast<size_t>(position * rotary_size),
                                                    static_cast<size_t>(rotary_size)),
                           pairing);
    return head;
  }

  /// The expected cache row for a token's kv.
  std::vector<double> row(std::span<const float> kv_row, int32_t position) const {
    const auto latent = kv_row.first(static_cast<size_t>(latent_size));
    std::vector<double> out =
        reference::rms_norm(reference::to_matrix(latent, 1, latent_size), norm(), static_cast<double>(kEps))
            .data;
    const std::vector<double> key = rotated(kv_row.subspan(static_cast<size_t>(latent_size)), position);
    out.insert(out.end(), key.begin(), key.end());
    return out;
  }

  /// The rotated elements of all heads of a token's q, behind the other elements of all heads.
  std::vector<double> queries(std::span<const float> q_row, int32_t position) const {
    std::vector<double> out = others<double>(q_row);
    for (int32_t h = 0; h < heads; ++h) {
      const auto first = static_cast<size_t>(h * (other_size + rotary_size) + other_size);
      const std::vector<double> head =
          rotated(q_row.subspan(first, static_cast<size_t>(rotary_size)), position);
      out.insert(out.end(), head.begin(), head.end());
    }
    for (double& element : out)
      element *= q_scale(position);
    return out;
  }

  /// The elements of q's heads that are not rotated.
  template <class T>
  std::vector<T> others(std::span<const float> q_row) const {
    std::vector<T> out;
    for (size_t i = 0; i < q_row.size(); ++i)
      if (i % static_cast<size_t>(other_size + rotary_size) < static_cast<size_t>(other_size))
        out.push_back(static_cast<T>(q_row[i]));
    return out;
  }

  /// The rotated elements of a row of q_out. All other elements must still be NaN.
  std::vector<float> written(std::span<const float> out_row) const {
    std::vector<float> found;
    for (int32_t h = 0; h < heads; ++h) {
      for (int32_t i = 0; i < row_size(); ++i) {
        const float value = out_row[static_cast<size_t>(h * row_size() + i)];
        if (i >= latent_size) {
          found.push_back(value);
        } else if (!std::isnan(value)) {
          found.push_back(INFINITY);  // a write to a place that must not change
        }
      }
    }
    return found;
  }
};

}  // namespace minfer::test
