#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/gguf/name_index.h"

namespace minfer {

static_assert(std::endian::native == std::endian::little, "the reader takes little-endian files as they are");

/// Value types of GGUF metadata, numbered as in the file.
enum class GgufType : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

std::string_view name(GgufType type);

/// Reads little-endian values one after another from untrusted bytes. Every read is checked
/// against the end. A failure is a FileError that names the file, the value, its offset and the found bytes.
class ByteCursor {
 public:
  /// `bytes` and `file` (a name for messages) outlive the cursor.
  ByteCursor(std::span<const std::byte> bytes, std::string_view file, uint64_t offset = 0)
      : bytes_(bytes), file_(file), offset_(offset) {}

  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view file() const { return file_; }
  uint64_t offset() const { return offset_; }
  uint64_t remaining() const { return bytes_.size() - offset_; }

  /// The next value; `what` names it in messages.
  template <class T>
  T read(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what), sizeof(T));
    return value;
  }
  /// A 64-bit length and that many bytes. The view lives as long as the bytes.
  std::string_view read_string(std::string_view what);
  /// Skips `count` values of `size` bytes each.
  void skip(uint64_t count, uint64_t size, std::string_view what);
  /// Throws unless `count` records of at least `min_bytes` each can follow. Call it before allocating memory for them.
  void expect_room(uint64_t count, uint64_t min_bytes, std::string_view what) const;

 private:
  const std::byte* take(uint64_t size, std::string_view what);

  std::span<const std::byte> bytes_;
  std::string_view file_;
  uint64_t offset_;  // never beyond bytes_
};

/// The key-value section of one GGUF file. It stores the offset of each value; getters read the value there, each time with a checked
/// cursor. So bytes that change under a mapping can give wrong values, but never a read outside it.
class GgufMetadata {
 public:
  struct Entry {
    std::string_view key;
    GgufType type;
    GgufType element_type;  ///< of an array; else equal to type
    uint64_t count;         ///< elements of an array; else 1
  };

  /// Reads `count` entries at the cursor. The bytes and the name of the cursor's file outlive the object.
  static GgufMetadata parse(ByteCursor& cursor, uint64_t count);

  std::span<const Entry> metadata() const { return entries_; }
  const Entry* find(std::string_view key) const;  ///< null: absent
  bool has(std::string_view key) const { return find(key) != nullptr; }

  /// Typed getters. Absent key: nullopt (or FileError for the require_ forms); present with another type:
  /// FileError. Integers of any width and sign are accepted for both integer getters if the value fits.
  std::optional<int64_t> get_int(std::string_view key) const;
  std::optional<double> get_float(std::string_view key) const;  ///< f32 or f64
  std::optional<bool> get_bool(std::string_view key) const;
  std::optional<std::string_view> get_string(std::string_view key) const;
  int64_t require_int(std::string_view key) const { return required(key, get_int(key)); }
  double require_float(std::string_view key) const { return required(key, get_float(key)); }
  std::string_view require_string(std::string_view key) const { return required(key, get_string(key)); }

  /// Arrays; empty if the key is absent.
  std::vector<std::string_view> get_strings(std::string_view key) const;
  std::vector<int64_t> get_ints(std::string_view key) const;  ///< any integer or bool element type
  std::vector<float> get_floats(std::string_view key) const;

  /// A short rendering of a value for people ("[string x 3] a, b, c", "llama", "1e-05"): one line, arrays and
  /// long strings shortened, control characters escaped. Throws FileError if the key is absent.
  std::string describe(std::string_view key) const;

  /// Throws unless the key is absent or of exactly this type.
  void expect_type(std::string_view key, GgufType type) const;
  [[noreturn]] void fail_missing(std::string_view key) const;

 private:
  GgufMetadata(const ByteCursor& cursor, std::vector<Entry> entries, std::vector<uint64_t> offsets);
  ByteCursor value_at(const Entry& entry) const;
  template <class T>
  T required(std::string_view key, const std::optional<T>& value) const {
    if (!value) fail_missing(key);
    return *value;
  }
  template <class Read>
  auto get(std::string_view key, bool (*is_expected)(GgufType), std::string_view expected,
           const Read& read) const;
  template <class T, class Read>
  std::vector<T> get_array(std::string_view key, bool (*is_expected)(GgufType), std::string_view expected,
                           const Read& read) const;
  [[noreturn]] void fail_type(const Entry& entry, std::string_view expected) const;

  std::vector<Entry> entries_;
  std::vector<uint64_t> offsets_;  // of each entry's value in bytes_; an array's first element
  std::span<const std::byte> bytes_;
  std::string_view file_;
  NameIndex index_;
};

}  // namespace minfer
