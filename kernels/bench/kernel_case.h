#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kernels/op_args.h"
#include "kernels/work.h"

namespace minfer {

/// How the rows of a `sample` case become tokens: the likeliest token, or a draw at temperature 0.8, alone or with a cutoff.
enum class SampleKind : uint8_t { greedy, temperature, top_k_50, top_p_90 };
inline constexpr SampleKind kSampleKinds[] = {SampleKind::greedy, SampleKind::temperature,
                                              SampleKind::top_k_50, SampleKind::top_p_90};
std::string_view name(SampleKind kind);

/// One op at one size, by shapes and types alone. `minfer bench --kernels` measures it, and tests compare it
/// with the reference. All sequences are alike.
struct KernelCase {
  OpInfo info;  ///< its fields about weights are set anew after loading
  int32_t tokens = 0;
  int32_t sequences = 1;  ///< only attention tells them apart
  int32_t context = 0;    ///< cached tokens of a sequence, including those of the step
  SampleKind sampling = SampleKind::greedy;
  float norm_eps = 1e-5f;
  int32_t rotary_size = 0;  ///< rope_kv_write
  float logit_cap = 0.0f;   ///< attention; 0: none
  RopePairing pairing = RopePairing::interleaved;

  bool is_decode() const { return info.scope == TokenScope::decode; }
  std::string shape() const;  ///< for people, e.g. "N 6144, K 4096"
  BatchShape batch_shape() const;
  KernelWork work() const { return op_work(info, batch_shape()); }
};

/// The number of blocks of `block_size` tokens that a sequence's context takes.
inline int32_t blocks_of_sequence(const KernelCase& c, int32_t block_size) {
  return (c.context + block_size - 1) / block_size;
}

/// The limits that a backend must be prepared for to run any of these cases, all of one op, with
/// `max_stamps` ops in a step. `most_cols`: columns of any other weight that is multiplied.
StepLimits step_limits(std::span<const KernelCase> cases, int32_t block_size, int64_t most_cols,
                       int32_t max_stamps);

}  // namespace minfer
