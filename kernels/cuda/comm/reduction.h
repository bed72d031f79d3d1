#pragma once

#include <cstdint>

#include <cuda_bf16.h>

#include "kernels/cuda/comm/peer_memory.h"
#include "kernels/cuda/device/check.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// An all-reduce over memory that the GPUs see of each other, or its rest after NCCL has summed the parts.
struct Reduction {
  AllReduceArgs args;                     ///< part [rows, cols] f32 or bf16, x f32, normed f32 or bf16
  unsigned long long* arrived = nullptr;  ///< see RowEnd
  Channel channel = {};
  BlockLayout layout = {};
};

/// AllReducePath::lines. At most layout.lines_per_rank lines.
void all_reduce_lines(Launch& launch, const Reduction& reduction);
/// AllReducePath::chunks. At most layout.data_bytes_per_rank, in whole vectors; all_reduce_two_shot() too.
void all_reduce_chunks(Launch& launch, const Reduction& reduction);
/// AllReducePath::two_shot. Sums are rounded to the type of the parts, once, before they are sent.
void all_reduce_two_shot(Launch& launch, const Reduction& reduction);
/// x = part (+ x) and the norm.
void end_rows(Launch& launch, const AllReduceArgs& args);

/// Bytes of a row of a part in a receiver's memory: whole vectors.
constexpr int64_t padded_row_bytes(int64_t cols, int64_t element_bytes) {
  return vectors_of(cols) * kVectorElements * element_bytes;
}

/// True if all rows consist of whole vectors at addresses that allow 16-byte accesses.
inline bool is_aligned(const AllReduceArgs& args) {
  const auto allows = [](const void* data, int64_t stride) {
    return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % kVectorElements == 0;
  };
  return args.x.cols % kVectorElements == 0 && allows(args.part.data, args.part.stride) &&
         allows(args.x.data, args.x.stride) && allows(args.norm.data, 0) &&
         (!args.norm || allows(args.normed.data, args.normed.stride));
}

/// Threads of a block for rows of `cols` columns: one for each vector, at most `most`.
constexpr uint32_t threads_of_rows(int64_t cols, int64_t most) {
  const int64_t threads = (vectors_of(cols) + 31) / 32 * 32;
  return static_cast<uint32_t>(threads < most ? threads : most);
}

/// The blocks that fit on the device at a time, for kernels with __launch_bounds__(most_threads, 1). A block
/// that polls may wait for any of them.
constexpr int64_t resident_blocks(int32_t num_sms, int64_t most_threads, uint32_t threads) {
  return num_sms * (most_threads / threads);
}

/// Calls f.operator()<Part, Normed, kAligned>() for the types of `args`.
template <class F>
void for_types(const AllReduceArgs& args, F f) {
  const bool aligned = is_aligned(args);
  const auto with_part = [&]<class Part>() {
    const auto with_normed = [&]<class Normed>() {
      aligned ? f.template operator()<Part, Normed, true>() : f.template operator()<Part, Normed, false>();
    };
    const DType normed = args.norm ? args.normed.dtype : DType::f32;
    if (normed == DType::f32) return with_normed.template operator()<float>();
    if (normed == DType::bf16) return with_normed.template operator()<__nv_bfloat16>();
    unsupported("all_reduce", "normed of f32 or bf16", name(normed));
  };
  if (args.part.dtype == DType::f32) return with_part.template operator()<float>();
  if (args.part.dtype == DType::bf16) return with_part.template operator()<__nv_bfloat16>();
  unsupported("all_reduce", "parts of f32 or bf16", name(args.part.dtype));
}

}  // namespace minfer::cuda
