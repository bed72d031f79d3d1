#pragma once

#include <cstdint>
#include <string>

#include "engine/memory/kv_events.h"

namespace minfer {

/// vLLM's two ways of writing an event. A batch is an array in both.
enum class KvEventFormat : uint8_t {
  map,    ///< by the names of its fields: vLLM 0.24 (2026) and later
  array,  ///< by their places: before
};

/// A batch as vLLM (vllm/distributed/kv_events.py) writes it in MessagePack: [seconds since 1970, events, data-parallel rank 0].
std::string encode_kv_events(const KvEventBatch& batch, double time_s, KvEventFormat format);

}  // namespace minfer
