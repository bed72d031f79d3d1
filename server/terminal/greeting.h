#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace minfer {

/// The facts that a person who starts a server wants first.
struct ServingFacts {
  std::string url;         ///< the address where it listens
  std::string model_name;  ///< as clients give it
  std::string model;       ///< the file, or what else it is
  std::string device;
  int32_t ranks = 1;              ///< ranks that share the model
  std::string all_reduce = {};    ///< how ranks add up; empty: there is one way
  std::string quantization = {};  ///< the type of layers' weights after load; empty: as in the file
  std::string kv_type;
  int32_t block_size = 0;    ///< tokens of a KV block
  int64_t kv_tokens = 0;     ///< tokens that the KV cache holds
  int64_t state_bytes = 0;   ///< bytes of the states of all sequences that may run; 0: none
  int64_t state_copies = 0;  ///< copies that the prefix cache may keep
  int64_t state_copy_bytes = 0;
  int32_t context = 0;         ///< tokens of a prompt and its answer at most
  int32_t max_num_seqs = 0;    ///< sequences at once
  int32_t max_queue_size = 0;  ///< sequences that may wait
  bool needs_key = false;
  std::vector<std::string> all_models = {};  ///< of a server with several, by their names
  size_t max_loaded = 0;                     ///< of these
};

/// The facts in a few lines, with a curl command that works in a shell as it stands. A server that listens on every
/// address is asked on this machine's own; a key is taken from MINFER_API_KEY.
std::string greeting(const ServingFacts& facts);

}  // namespace minfer
