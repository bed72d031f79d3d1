#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/dtype.h"
#include "models/gguf/gguf.h"

namespace minfer::test {

/// The bytes of a growing file, little-endian.
class ByteWriter {
 public:
  template <class T>
  void put(T value) {
    put_bytes(std::as_bytes(std::span(&value, 1)));
  }
  void put_string(std::string_view text);  ///< the length in 64 bits, then the bytes
  void put_bytes(std::span<const std::byte> bytes);
  void pad(size_t alignment) { bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment); }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// Writes a GGUF file in memory. The named functions add well-formed data. The `with_` fields and raw_key()
/// and raw_tensor() make files that no writer should make.
class GgufBuilder {
 public:
  /// A tensor as its record states it. Without an offset it follows the tensor before it.
  struct TensorRecord {
    std::string name;
    std::vector<uint64_t> dims;  ///< contiguous dimension first
    uint32_t ggml_type = 0;
    std::optional<uint64_t> offset{};
    std::optional<uint32_t> num_dims{};  ///< the stated number, if not dims.size()
    std::vector<std::byte> data{};
  };

  GgufBuilder& add(std::string_view key, uint8_t value) { return scalar(key, GgufType::u8, value); }
  GgufBuilder& add(std::string_view key, int8_t value) { return scalar(key, GgufType::i8, value); }
  GgufBuilder& add(std::string_view key, uint16_t value) { return scalar(key, GgufType::u16, value); }
  GgufBuilder& add(std::string_view key, int16_t value) { return scalar(key, GgufType::i16, value); }
  GgufBuilder& add(std::string_view key, uint32_t value) { return scalar(key, GgufType::u32, value); }
  GgufBuilder& add(std::string_view key, int32_t value) { return scalar(key, GgufType::i32, value); }
  GgufBuilder& add(std::string_view key, uint64_t value) { return scalar(key, GgufType::u64, value); }
  GgufBuilder& add(std::string_view key, int64_t value) { return scalar(key, GgufType::i64, value); }
  GgufBuilder& add(std::string_view key, float value) { return scalar(key, GgufType::f32, value); }
  GgufBuilder& add(std::string_view key, double value) { return scalar(key, GgufType::f64, value); }
  GgufBuilder& add(std::string_view key, bool value) {
    return scalar(key, GgufType::boolean, uint8_t{value});
  }
  GgufBuilder& add(std::string_view key, std::string_view value);
  GgufBuilder& add(std::string_view key, const char* value) { return add(key, std::string_view(value)); }
  GgufBuilder& add(std::string_view key, const std::vector<std::string>& values);
  GgufBuilder& add(std::string_view key, const std::vector<float>& values) {
    return array(key, GgufType::f32, values);
  }
  GgufBuilder& add(std::string_view key, const std::vector<int32_t>& values) {
    return array(key, GgufType::i32, values);
  }
  GgufBuilder& add(std::string_view key, const std::vector<uint32_t>& values) {
    return array(key, GgufType::u32, values);
  }
  GgufBuilder& add(std::string_view key, const std::vector<uint8_t>& values) {
    return array(key, GgufType::u8, values);
  }

  /// Adds a tensor of `dims` (contiguous first) with `data`; if `data` is empty, with bytes 0, 1, 2, ... of
  /// the right size.
  GgufBuilder& tensor(std::string_view name, DType dtype, std::vector<uint64_t> dims,
                      std::vector<std::byte> data = {});

  /// Adds key, type number and value bytes unchanged.
  GgufBuilder& raw_key(std::string_view key, uint32_t type, std::span<const std::byte> value);
  GgufBuilder& raw_tensor(TensorRecord record);

  uint32_t with_magic = 0x46554747;
  uint32_t with_version = 3;
  std::optional<uint64_t> with_num_keys{};     ///< the stated number, if not the number added
  std::optional<uint64_t> with_num_tensors{};  ///< the stated number, if not the number added
  uint64_t with_alignment = 32;                ///< of the data; add "general.alignment" as well

  std::vector<std::byte> build() const;
  void write(const std::filesystem::path& path) const;

 private:
  template <class T>
  GgufBuilder& scalar(std::string_view key, GgufType type, T value) {
    ByteWriter writer;
    writer.put(value);
    return raw_key(key, static_cast<uint32_t>(type), writer.bytes());
  }
  template <class T>
  GgufBuilder& array(std::string_view key, GgufType element_type, const std::vector<T>& values) {
    ByteWriter writer;
    writer.put(static_cast<uint32_t>(element_type));
    writer.put(uint64_t{values.size()});
    writer.put_bytes(std::as_bytes(std::span(values)));
    return raw_key(key, static_cast<uint32_t>(GgufType::array), writer.bytes());
  }

  ByteWriter keys_;
  uint64_t num_keys_ = 0;
  std::vector<TensorRecord> tensors_;
};

/// A small file that uses every value type, arrays and three tensors: the base of truncations
/// and mutations.
GgufBuilder small_gguf();

void write_bytes(const std::filesystem::path& path, std::span<const std::byte> bytes);

}  // namespace minfer::test
