#include <algorithm>

#include "kernels/cpu/context/check.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/rotary.h"

// The writes of latent attention before it attends (LatentKvWriteArgs), token by token. Reads and writes each element once.
namespace minfer::cpu {
namespace {

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
  const float* cos_sin = args.cos_sin + int64_t{batch.positions[token]} * rotary_size;
  const int64_t q_size = args.q.cols / args.heads;
  for (int32_t h = 0; h < args.heads; ++h) {
    const float* from = args.q.f32_row(token) + (h + 1) * q_size - rotary_size;
    float* to = args.q_out.f32_row(token) + int64_t{h + 1} * kv.head_size - rotary_size;
    std::copy_n(from, rotary_size, to);
    rotate_head(to, cos_sin, rotary_size, pairing);
  }
  float* row = args.kv.f32_row(token);
  const auto* weight = static_cast<const float*>(args.kv_norm.data);
  context.lanes->rms_norm_row(row, weight, args.norm_eps, kv.value_size(), row);
  rotate_head(row + kv.value_size(), cos_sin, rotary_size, pairing);
  const size_t bytes = row_bytes(kv.dtype, kv.head_size);
  store_head(row, kv.dtype, kv.head_size,
             static_cast<char*>(kv.k) + static_cast<size_t>(batch.slots[token]) * bytes);
}

}  // namespace

void latent_kv_write(const ForwardBatch& batch, const LatentKvWriteArgs& args, const OpContext& context) {
  check(batch, args);
  for_each_row(args.q, context, [&](int64_t t) { write_token(batch, args, t, context); });
}

}  // namespace minfer::cpu
