#pragma once

#include <cstdint>

#include "kernels/dtype.h"

namespace minfer {

enum class SchedulingPolicy : uint8_t { fcfs, priority };

/// Options of the engine that mean the same in every command. 0 means: choose.
struct EngineOptions {
  int32_t max_model_len = 0;   ///< tokens of prompt and output together; 0: the model's context length
  int32_t max_num_seqs = 256;  ///< sequences running at once
  int32_t max_num_batched_tokens = 2048;  ///< token budget of a step
  int32_t block_size = 16;                ///< tokens of a KV block
  int32_t num_blocks = 0;                 ///< KV blocks; 0: from kv_cache_bytes
  int64_t kv_cache_bytes = 0;             ///< 0: chosen from the machine's free memory
  DType kv_cache_dtype = DType::f32;
  bool enable_prefix_caching = true;
  bool enable_chunked_prefill = true;
  SchedulingPolicy policy = SchedulingPolicy::fcfs;
  int32_t stream_interval = 1;
  int32_t threads = 0;
  uint64_t seed = 0;
};

}  // namespace minfer
