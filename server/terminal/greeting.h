#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/options/engine_options.h"
#include "kernels/target.h"

namespace minfer {

/// The facts that a person who starts a server wants first.
struct ServingFacts {
  std::string url;         ///< the address where it listens
  std::string model_name;  ///< as clients give it
  std::string model;       ///< the file, or what else it is
  BackendInfo backend;
  EngineOptions options;         ///< as chosen: no size is 0
  int64_t state_slot_bytes = 0;  ///< bytes of a sequence's states; 0: none
  int32_t max_queue_size = 0;    ///< sequences that may wait
  bool needs_key = false;
  std::vector<std::string> all_models = {};  ///< the names of a server's models, if they are several
  size_t max_loaded = 0;                     ///< of these
};

/// The facts in a few lines, with a curl command that works in a shell as it stands. A server that listens on every
/// address is asked on this machine's own; a key is taken from MINFER_API_KEY.
std::string greeting(const ServingFacts& facts);

}  // namespace minfer
