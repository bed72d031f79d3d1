#pragma once

#include <cstdint>
#include <string>

namespace minfer {

/// What a person who starts a server wants to know of it first.
struct ServingFacts {
  std::string url;         ///< where it listens
  std::string model_name;  ///< as clients give it
  std::string model;       ///< the file, or what else it is
  std::string device;
  int32_t ranks = 1;              ///< that share the model
  std::string all_reduce = {};    ///< how they add up; empty: there is one way
  std::string quantization = {};  ///< what the weights of layers have become at load; empty: nothing else
  std::string kv_type;
  int32_t block_size = 0;    ///< tokens of a KV block
  int64_t kv_tokens = 0;     ///< that the KV cache holds
  int64_t state_bytes = 0;   ///< of states of all sequences that may run; 0: the model has none
  int64_t state_copies = 0;  ///< that the prefix cache may keep
  int64_t state_copy_bytes = 0;
  int32_t context = 0;         ///< tokens of a prompt and its answer at most
  int32_t max_num_seqs = 0;    ///< sequences at once
  int32_t max_queue_size = 0;  ///< sequences that may wait
  bool needs_key = false;
};

/// The facts in a few lines, with a curl command that works in a shell as it stands. A server that listens on every
/// address is asked on this machine's own; a key is taken from MINFER_API_KEY.
std::string greeting(const ServingFacts& facts);

}  // namespace minfer
