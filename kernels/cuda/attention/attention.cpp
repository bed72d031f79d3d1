#include "kernels/cuda/attention/attention.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/decode/attention_decode.h"
#include "kernels/cuda/attention/latent/attention_latent.h"
#include "kernels/cuda/attention/prefill/attention_prefill.h"
#include "kernels/cuda/attention/shared/attention_options.cuh"
#include "kernels/cuda/attention/shared/attention_path.h"
#include "kernels/cuda/device/attributes.h"
#include "kernels/cuda/weights/element_types.h"

namespace minfer::cuda {
namespace {

void check_args(const ForwardBatch& batch, const AttentionArgs& args) {
  const KvLayer& kv = args.kv;
  if (kv.kv_heads <= 0 || args.heads <= 0 || args.heads % kv.kv_heads != 0) {
    unsupported("attention", "heads that are a multiple of the KV heads",
                std::to_string(args.heads) + " over " + std::to_string(kv.kv_heads));
  }
  const int64_t heads = args.heads;
  require_equal("attention: rows of qkv", batch.num_tokens, args.qkv.rows);
  if (args.qkv.cols != heads * kv.head_size) {
    require_equal("attention: columns of qkv",
                  (heads + kv.kv_heads) * kv.head_size + int64_t{kv.kv_heads} * kv.value_size(),
                  args.qkv.cols);
  }
  require_equal("attention: rows of out", batch.num_tokens, args.out.rows);
  require_equal("attention: columns of out", heads * kv.value_size(), args.out.cols);
  const bool is_fp8 = args.out.dtype == DType::fp8 && kv.value_size() == kFp8Columns;
  if (args.out.dtype != args.qkv.dtype && !is_fp8) {
    unsupported("attention", "an output of qkv's type, or of fp8 with heads of 128", name(args.out.dtype));
  }
  if (args.first_sequence < 0 || args.num_sequences < 0 ||
      args.num_sequences > batch.num_sequences - args.first_sequence) {
    unsupported("attention", "sequences within the " + std::to_string(batch.num_sequences) + " of the batch",
                std::to_string(args.num_sequences) + " from " + std::to_string(args.first_sequence));
  }
}

void check_options(const AttentionArgs& args) {
  if (args.window.keys < 0) {
    unsupported("attention", "a window of 0 keys, for none, or more", std::to_string(args.window.keys));
  }
  if (!(args.logit_cap >= 0.0f)) {
    unsupported("attention", "logits capped at 0, for no cap, or more", std::to_string(args.logit_cap));
  }
  if (args.chosen != nullptr && (!args.kv.v_in_k || args.kv.kv_heads != 1 || has_options(args)))
    unsupported("attention",
                "chosen keys of one KV head that hold their values, without window, cap and sinks",
                std::to_string(args.most_chosen) + " of " + std::to_string(args.kv.kv_heads));
  if (!args.sinks) return;
  require_equal("attention: sinks", args.heads, args.sinks.rows * args.sinks.cols);
  if (args.sinks.dtype != DType::f32) unsupported("attention", "sinks of f32", name(args.sinks.dtype));
}

// The head sizes that instances.cmake has kernels for. Common ones have kernels without options too.
using CommonHeads = std::integer_sequence<int, 64, 128, 256>;
using WgmmaHeads = std::integer_sequence<int, 64, 80, 96, 128, 192, 256>;
using DecodeHeads = std::integer_sequence<int, 64, 80, 96, 128, 192, 256, 512>;

/// Calls launch(std::integral_constant<int, head_size>) if the head size is one of `heads`; returns whether it is.
template <int... heads, class F>
bool for_head(std::integer_sequence<int, heads...> /*heads*/, int32_t head_size, const F& launch) {
  return ((head_size == heads && (launch(std::integral_constant<int, heads>{}), true)) || ...);
}

/// Calls launch(parameters, head size as in for_head()). Takes kernels with options only if there are options, or no kernels without.
template <class OptionParams, class Heads, class Params, class F>
void for_form(Heads heads, const AttentionArgs& args, const Params& params, const F& launch) {
  const OptionParams with_options{params, attention_options(args)};
  const int32_t size = args.kv.head_size;
  const auto plain = [&](auto head) { launch(params, head); };
  if (!has_options(args) && for_head(CommonHeads{}, size, plain)) return;
  if (for_head(heads, size, [&](auto head) { launch(with_options, head); })) return;
  unsupported("attention on tensor cores", "a head size that it has kernels for", std::to_string(size));
}

/// Room for the partial results of any layer; layers use it in turn.
size_t partial_bytes(const DecodePlans& plans) {
  int64_t most = 0;
  for (const DecodePlan& plan : std::span(plans.plans).first(static_cast<size_t>(plans.count))) {
    if (!has_tensor_cores(plan.kind.head_size)) continue;
    most = std::max(most, 2 * plan.num_shares * decode_partial_bytes(plan.kind.head_size));
  }
  return static_cast<size_t>(most);
}

}  // namespace

AttentionOps::AttentionOps(int32_t num_sms, const StepLimits& limits)
    : heads_(limits.heads),
      max_sequences_(limits.max_sequences),
      num_sms_(num_sms),
      device_(device_facts(num_sms)),
      plans_(DecodePlans::of(limits.attention_kinds, limits.heads, num_sms)),
      shares_(static_cast<size_t>(plans_.count * plans_.most_shares()) * sizeof(DecodeShare),
              "attention plan"),
      partials_(partial_bytes(plans_), "attention workspace"),
      counters_(DeviceBuffer::zeros(
          static_cast<size_t>(limits.max_sequences) * plans_.most_units() * sizeof(int32_t),
          "attention counters")),
      taken_tiles_(DeviceBuffer::zeros(sizeof(uint32_t), "attention counters")) {
  if (limits.latent_row == kLatentRow) {
    const auto rows = static_cast<size_t>(LatentPlan::most_partial_rows(num_sms));
    latent_partials_ = DeviceBuffer(rows * kLatentValues * sizeof(float), "attention workspace");
    latent_maxima_ = DeviceBuffer(rows * sizeof(float2), "attention workspace");
  }
}

void AttentionOps::plan(Launch& launch, const ForwardBatch& batch) {
  if (!decodes_by_one(batch) || latent_partials_.bytes() > 0 || plans_.count == 0) return;
  plan_decode(launch, batch, plans_, shares_.as<DecodeShare>());
}

void AttentionOps::attention(Launch& launch, const ForwardBatch& batch, const AttentionArgs& args) {
  check_args(batch, args);
  check_options(args);
  if (args.num_sequences == 0) return;
  const AttentionPath path = choose_attention_path(batch, args, device_);
  switch (path) {
    case AttentionPath::decode:
      return decode(launch, batch, args);
    case AttentionPath::prefill:
    case AttentionPath::prefill_wgmma:
    case AttentionPath::prefill_wide:
      return prefill(launch, batch, args, path);
    case AttentionPath::latent:
      return latent(launch, batch, args);
    case AttentionPath::general:
      return attention_general(launch, batch, args);
  }
}

void AttentionOps::decode(Launch& launch, const ForwardBatch& batch, const AttentionArgs& args) {
  if (batch.num_decode_sequences > max_sequences_) {
    unsupported("attention", "up to " + std::to_string(max_sequences_) + " sequences",
                std::to_string(batch.num_decode_sequences));
  }
  const int32_t index =
      plans_.find({args.kv.kv_heads, args.kv.head_size, args.window, args.heads == heads_ ? 0 : args.heads});
  const DecodePlan& plan = plans_.plans[index];
  const DecodeParams params{attention_params(batch, args),
                            plan.per_kv_head,
                            plan.units,
                            shares_.as<DecodeShare>() + index * plans_.most_shares(),
                            partials_.data(),
                            counters_.as<int32_t>()};
  for_form<DecodeOptionParams>(DecodeHeads{}, args, params, [&](const auto& form, auto head) {
    attention_decode<head>(launch, form, args.kv.dtype, plan.num_shares);
  });
}

void AttentionOps::latent(Launch& launch, const ForwardBatch& batch, const AttentionArgs& args) {
  int64_t max_context = int64_t{batch.max_blocks} * args.kv.block_size;
  const int32_t tokens = max_query_tokens(batch, args);
  int32_t sequences = args.num_sequences;
  if (args.chosen != nullptr) {
    max_context = std::min<int64_t>(max_context, args.most_chosen);
    sequences = tokens;
  }
  const LatentPlan plan = LatentPlan::of(tokens, sequences, args.heads, max_context, num_sms_);
  if (plan.partial_rows() * kLatentValues * int64_t{sizeof(float)} >
      static_cast<int64_t>(latent_partials_.bytes()))
    unsupported("attention", "a step of the limits that it was prepared for", "latent rows");
  const LatentParams params{attention_params(batch, args),
                            args.heads,
                            plan,
                            latent_partials_.as<float>(),
                            latent_maxima_.as<float2>(),
                            args.chosen,
                            args.most_chosen};
  for_type(DTypes<DType::bf16, DType::f16>{}, "latent attention: KV cache", args.kv.dtype,
           [&](auto kv) { attention_latent<ElementOf<kv>>(launch, params); });
}

void AttentionOps::prefill(Launch& launch, const ForwardBatch& batch, const AttentionArgs& args,
                           AttentionPath path) {
  const int32_t rows = path == AttentionPath::prefill_wide ? kWideQueryRows : kQueryRows;
  const int32_t tokens_per_tile = rows / (args.heads / args.kv.kv_heads);
  const PrefillParams params{
      attention_params(batch, args),
      tokens_per_tile,
      max_query_tokens(batch, args) / tokens_per_tile + args.num_sequences,
      batch.num_tokens,
      args.kv.num_blocks,
      keys_of_box(args.kv.block_size, args.kv.head_size, args.kv.dtype == DType::f8_e4m3),
      taken_tiles_.as<uint32_t>()};
  if (path == AttentionPath::prefill_wgmma) {
    return for_form<PrefillOptionParams>(WgmmaHeads{}, args, params, [&](const auto& form, auto head) {
      attention_prefill_wgmma<head>(launch, form, args.kv.dtype);
    });
  }
  const PrefillOptionParams with_options{params, attention_options(args)};
  for_type(NarrowCacheTypes{}, "attention on tensor cores: KV cache", args.kv.dtype, [&](auto type) {
    using Kv = ElementOf<type>;
    if (path == AttentionPath::prefill_wide) return attention_prefill_wide<Kv>(launch, with_options);
    has_options(args) ? attention_prefill<Kv>(launch, with_options, args.kv.head_size)
                      : attention_prefill<Kv>(launch, params, args.kv.head_size);
  });
}

}  // namespace minfer::cuda
