#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cpu/ops.h"
#include "kernels/half.h"

// QK norm, rotary position embedding (Su et al. 2021), in this order or the other, and the write of K and V to the paged cache, token by
// token:
//   y[a] = x[a] cos - x[b] sin,  y[b] = x[b] cos + x[a] sin     for each pair (a, b) of a head
// Every product is rounded before the sum. Reads and writes each element of qkv once; if gates stand behind q's heads, q goes elsewhere.
// Below, the same for latent attention (LatentKvWriteArgs).
namespace minfer::cpu {
namespace {

void store_head(const float* head, DType dtype, int size, void* out) {
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

void rotate_head(float* head, const float* cos_sin, int rotary_size, Pairing pairing) {
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
void check_cache(const char* op, const ForwardBatch& batch, const KvLayer& kv) {
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

/// The most elements of a value that is normed.
constexpr int32_t kMostNormed = 1024;

void check(const ForwardBatch& batch, const RopeKvWriteArgs& args) {
  const KvLayer& kv = args.kv;
  if (kv.v_in_k && (kv.value_size() != kv.head_size || args.v_norm || args.v_is_k))
    fail("rope_kv_write: values of {} within keys of {}, expected none", kv.value_size(), kv.head_size);
  if (args.v_is_k && kv.value_size() != kv.head_size)
    fail("rope_kv_write: values of {} that are keys of {}", kv.value_size(), kv.head_size);
  if (args.v_norm && kv.value_size() > kMostNormed)
    fail("rope_kv_write: normed values of {}, expected at most {}", kv.value_size(), kMostNormed);
  const int64_t values = args.v_is_k || kv.v_in_k ? 0 : int64_t{kv.kv_heads} * kv.value_size();
  check_f32("rope_kv_write: qkv", args.qkv, batch.num_tokens,
            int64_t{args.heads * (args.q_has_gate ? 2 : 1) + kv.kv_heads} * kv.head_size + values);
  if (args.q_has_gate) {
    check_f32("rope_kv_write: q_out", args.q_out, batch.num_tokens, int64_t{args.heads} * kv.head_size);
  } else if (args.q_out.data != nullptr) {
    fail("rope_kv_write: q_out is not supported, q is written in place");
  }
  if (args.rotary_size < 0 || args.rotary_size > kv.head_size || args.rotary_size % 2 != 0) {
    fail("rope_kv_write: rotary size {}, expected an even number up to the head size {}", args.rotary_size,
         kv.head_size);
  }
  const int64_t q_norms = args.layer_norms ? args.heads : 1, k_norms = args.layer_norms ? kv.kv_heads : 1;
  if (args.q_norm) check_vector("rope_kv_write: q_norm", args.q_norm, kv.head_size, q_norms);
  if (args.k_norm) check_vector("rope_kv_write: k_norm", args.k_norm, kv.head_size, k_norms);
  if (args.v_norm) check_vector("rope_kv_write: v_norm", args.v_norm, kv.value_size());
  check_cache("rope_kv_write", batch, kv);
}

/// Writes one head's value to the cache; the value itself is unchanged.
void write_value(const float* value, const RopeKvWriteArgs& args, void* out, const OpContext& context) {
  const int32_t size = args.kv.value_size();
  if (!args.v_norm) return store_head(value, args.kv.dtype, size, out);
  std::array<float, kMostNormed> normed;
  context.lanes->rms_norm_row(value, static_cast<const float*>(args.v_norm.data), args.norm_eps, size,
                              normed.data());
  store_head(normed.data(), args.kv.dtype, size, out);
}

/// `index`: the head's number among the heads of q or of k.
void norm_and_rotate(float* head, int32_t index, const Weight& norm, const float* cos_sin,
                     const RopeKvWriteArgs& args, const OpContext& context) {
  const int32_t size = args.kv.head_size;
  const auto* weight = static_cast<const float*>(norm.data);
  const auto rotate = [&] {
    rotate_head(head, cos_sin, args.rotary_size, Pairing::of(args.pairing, args.rotary_size));
  };
  if (args.norms_last) rotate();
  if (norm && args.layer_norms) {
    layer_norm_row(head, weight + int64_t{index} * size, args.norm_eps, size, head);
  } else if (norm) {
    context.lanes->rms_norm_row(head, weight, args.norm_eps, size, head);
  }
  if (!args.norms_last) rotate();
}

void rope_token(const ForwardBatch& batch, const RopeKvWriteArgs& args, int64_t token,
                const OpContext& context) {
  const KvLayer& kv = args.kv;
  const int64_t position = batch.positions[token];
  const float* cos_sin = args.cos_sin + position * args.rotary_size;
  float* head = args.qkv.f32_row(token);
  for (int32_t h = 0; h < args.heads; ++h, head += (args.q_has_gate ? 2 : 1) * kv.head_size) {
    float* q = head;
    if (args.q_has_gate)
      q = std::copy_n(head, kv.head_size, args.q_out.f32_row(token) + int64_t{h} * kv.head_size) -
          kv.head_size;
    norm_and_rotate(q, h, args.q_norm, cos_sin, args, context);
    for (int32_t d = 0; args.q_scale != nullptr && d < kv.head_size; ++d)
      q[d] *= args.q_scale[position];
  }
  const int64_t block = batch.slots[token] / kv.block_size;
  const int64_t offset = batch.slots[token] % kv.block_size;
  const float* value = head + int64_t{kv.kv_heads} * kv.head_size;
  const size_t key_bytes = row_bytes(kv.dtype, kv.head_size);
  const size_t value_bytes = row_bytes(kv.dtype, kv.value_size());
  for (int32_t h = 0; h < kv.kv_heads; ++h, head += kv.head_size, value += kv.value_size()) {
    const auto row = static_cast<size_t>((block * kv.kv_heads + h) * kv.block_size + offset);
    if (!kv.v_in_k)
      write_value(args.v_is_k ? head : value, args, static_cast<char*>(kv.v) + row * value_bytes, context);
    norm_and_rotate(head, h, args.k_norm, cos_sin, args, context);
    store_head(head, kv.dtype, kv.head_size, static_cast<char*>(kv.k) + row * key_bytes);
  }
}

void check(const ForwardBatch& batch, const LatentKvWriteArgs& args) {
  const KvLayer& kv = args.kv_layer;
  const int32_t rotary_size = args.rotary_size;
  if (!kv.v_in_k || kv.kv_heads != 1 || kv.value_size() + rotary_size != kv.head_size) {
    fail(
        "latent_kv_write: {} KV heads of {}, values of {}, expected one of {} rotated elements behind its "
        "value",
        kv.kv_heads, kv.head_size, kv.value_size(), rotary_size);
  }
  if (rotary_size < 2 || rotary_size % 2 != 0 || args.heads < 1 || args.q.cols % args.heads != 0 ||
      args.q.cols / args.heads < rotary_size) {
    fail(
        "latent_kv_write: {} rotated elements of {} heads of q in {} columns, expected an even number in "
        "each head",
        rotary_size, args.heads, args.q.cols);
  }
  check_f32("latent_kv_write: q", args.q, batch.num_tokens, args.q.cols);
  check_f32("latent_kv_write: kv", args.kv, batch.num_tokens, kv.head_size);
  check_f32("latent_kv_write: q_out", args.q_out, batch.num_tokens, int64_t{args.heads} * kv.head_size);
  check_vector("latent_kv_write: kv_norm", args.kv_norm, kv.value_size());
  check_cache("latent_kv_write", batch, kv);
}

void write_token(const ForwardBatch& batch, const LatentKvWriteArgs& args, int64_t token,
                 const OpContext& context) {
  const KvLayer& kv = args.kv_layer;
  const int32_t rotary_size = args.rotary_size;
  const Pairing pairing = Pairing::of(args.pairing, rotary_size);
  const auto rotate = [&](float* head) {
    if (args.cos_sin != nullptr)
      rotate_head(head, args.cos_sin + int64_t{batch.positions[token]} * rotary_size, rotary_size, pairing);
  };
  const int64_t q_size = args.q.cols / args.heads;
  for (int64_t d = 0; args.q_scale != nullptr && d < args.q.cols; ++d)
    args.q.f32_row(token)[d] *= args.q_scale[batch.positions[token]];
  for (int32_t h = 0; h < args.heads; ++h) {
    const float* from = args.q.f32_row(token) + (h + 1) * q_size - rotary_size;
    float* to = args.q_out.f32_row(token) + int64_t{h + 1} * kv.head_size - rotary_size;
    std::copy_n(from, rotary_size, to);
    rotate(to);
  }
  float* row = args.kv.f32_row(token);
  const auto* weight = static_cast<const float*>(args.kv_norm.data);
  context.lanes->rms_norm_row(row, weight, args.norm_eps, kv.value_size(), row);
  rotate(row + kv.value_size());
  const size_t bytes = row_bytes(kv.dtype, kv.head_size);
  store_head(row, kv.dtype, kv.head_size,
             static_cast<char*>(kv.k) + static_cast<size_t>(batch.slots[token]) * bytes);
}

}  // namespace

void rope_kv_write(const ForwardBatch& batch, const RopeKvWriteArgs& args, const OpContext& context) {
  check(batch, args);
  for_each_row(args.qkv, context, [&](int64_t t) { rope_token(batch, args, t, context); });
}

void latent_kv_write(const ForwardBatch& batch, const LatentKvWriteArgs& args, const OpContext& context) {
  check(batch, args);
  for_each_row(args.q, context, [&](int64_t t) { write_token(batch, args, t, context); });
}

}  // namespace minfer::cpu
