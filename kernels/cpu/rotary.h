#pragma once

#include <cstring>

#include "kernels/half.h"
#include "kernels/op_args.h"

/// Shared by the ops that rotate heads and write the cache.
namespace minfer::cpu {

inline void store_head(const float* head, DType dtype, int size, void* out) {
  auto* half = static_cast<uint16_t*>(out);
  if (dtype == DType::f32) {
    std::memcpy(out, head, static_cast<size_t>(size) * sizeof(float));
  } else if (dtype == DType::bf16) {
    for (int i = 0; i < size; ++i)
      half[i] = f32_to_bf16(head[i]);
  } else {
    for (int i = 0; i < size; ++i)
      half[i] = f32_to_f16(head[i]);
  }
}

/// The pair of elements a and b = a + distance; consecutive pairs begin `step` apart.
struct Pairing {
  int step;
  int distance;

  static Pairing of(RopePairing pairing, int rotary_size) {
    return pairing == RopePairing::interleaved ? Pairing{2, 1} : Pairing{1, rotary_size / 2};
  }
};

inline void rotate_head(float* head, const float* cos_sin, int rotary_size, Pairing pairing) {
  for (int i = 0; i < rotary_size / 2; ++i) {
    float& a = head[i * pairing.step];
    float& b = head[i * pairing.step + pairing.distance];
    const float cosine = cos_sin[2 * i];
    const float sine = cos_sin[2 * i + 1];
    const float rotated = a * cosine - b * sine;
    b = b * cosine + a * sine;
    a = rotated;
  }
}

/// Throws Error unless every token of `batch` has a slot in the cache and the cache's type is one that the CPU writes.
inline void check_cache(const char* op, const ForwardBatch& batch, const KvLayer& kv) {
  if (kv.dtype != DType::f32 && kv.dtype != DType::bf16 && kv.dtype != DType::f16) {
    fail("{}: KV cache of type {}, expected f32, bf16 or f16", op, name(kv.dtype));
  }
  const int64_t slots = int64_t{kv.num_blocks} * kv.block_size;
  for (int32_t t = 0; t < batch.num_tokens; ++t) {
    if (batch.slots[t] < 0 || batch.slots[t] >= slots) {
      fail("{}: token {} has slot {}, expected 0 to {}", op, t, batch.slots[t], slots - 1);
    }
  }
}

}  // namespace minfer::cpu
