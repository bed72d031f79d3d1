#include "kernels/cuda/attention.h"

#include <string>

#include "kernels/cuda/attention_kernels.h"

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
  require_equal("attention: columns of qkv", (heads + 2 * kv.kv_heads) * kv.head_size, args.qkv.cols);
  require_equal("attention: rows of out", batch.num_tokens, args.out.rows);
  require_equal("attention: columns of out", heads * kv.head_size, args.out.cols);
  if (args.out.dtype != args.qkv.dtype) {
    unsupported("attention", "an output of qkv's type", name(args.out.dtype));
  }
  if (args.first_sequence < 0 || args.num_sequences < 0 ||
      args.num_sequences > batch.num_sequences - args.first_sequence) {
    unsupported("attention", "sequences within the " + std::to_string(batch.num_sequences) + " of the batch",
                std::to_string(args.num_sequences) + " from " + std::to_string(args.first_sequence));
  }
}

}  // namespace

AttentionOps::AttentionOps(int32_t, const StepLimits&) {}

void AttentionOps::plan(Launch&, const ForwardBatch&) {}

void AttentionOps::attention(Launch& launch, const ForwardBatch& batch, const AttentionArgs& args) {
  check_args(batch, args);
  if (args.num_sequences == 0) return;
  attention_general(launch, batch, args);
}

}  // namespace minfer::cuda
