#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/memory/kv_events.h"

namespace minfer {

/// Appends MessagePack values (https://github.com/msgpack/msgpack/blob/master/spec.md) to a string, each in its shortest form. A map or
/// array is its size, then its elements. Only for KV events; Debian's libmsgpack-cxx-dev cannot be installed beside libboost1.81-dev.
class MsgpackWriter {
 public:
  explicit MsgpackWriter(std::string& out) : out_(out) {}

  void nil() { put(0xc0, 1); }
  void unsigned_integer(uint64_t value) {
    if (value < 0x80) {
      put(value, 1);
    } else if (value <= UINT8_MAX) {
      tagged(0xcc, value, 1);
    } else if (value <= UINT16_MAX) {
      tagged(0xcd, value, 2);
    } else if (value <= UINT32_MAX) {
      tagged(0xce, value, 4);
    } else {
      tagged(0xcf, value, 8);
    }
  }
  void number(double value) { tagged(0xcb, std::bit_cast<uint64_t>(value), 8); }
  /// `text` in UTF-8, of at most 255 bytes.
  void string(std::string_view text) {
    if (text.size() < 32) {
      put(0xa0 | text.size(), 1);
    } else {
      tagged(0xd9, text.size(), 1);
    }
    out_.append(text);
  }
  void array(size_t size) { container(0x90, 0xdc, size); }
  void map(size_t size) { container(0x80, 0xde, size); }

 private:
  void container(uint8_t fixed, uint8_t tag, size_t size) {
    if (size < 16) {
      put(fixed | size, 1);
    } else if (size <= UINT16_MAX) {
      tagged(tag, size, 2);
    } else {
      tagged(static_cast<uint8_t>(tag + 1), size, 4);
    }
  }
  void tagged(uint8_t tag, uint64_t value, int bytes) {
    put(tag, 1);
    put(value, bytes);
  }
  void put(uint64_t value, int bytes) {  // big-endian
    while (bytes-- > 0)
      out_.push_back(static_cast<char>(value >> (8 * bytes)));
  }

  std::string& out_;
};

/// vLLM's two formats of an event. A batch is an array in both.
enum class KvEventFormat : uint8_t {
  map,    ///< fields by name: vLLM 0.24 (2026) and later
  array,  ///< fields by position: earlier versions
};

/// A batch as vLLM (vllm/distributed/kv_events.py) writes it in MessagePack: [seconds since 1970, events, data-parallel rank 0].
std::string encode_kv_events(const KvEventBatch& batch, double time_s, KvEventFormat format);

}  // namespace minfer
