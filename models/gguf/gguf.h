#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/error.h"
#include "kernels/tensor_view.h"

namespace minfer {

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

/// A GGUF model file (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), versions 2 and 3, little-endian, whole or split
/// (-00001-of-0000N.gguf: give the first part). The file is mapped, not read: opening costs the header, and tensor bytes are touched when
/// used. Files are untrusted: everything is checked against the file's size on opening, with a FileError that names the file, the key or
/// tensor, what was expected and what was found. Immutable, so any thread may read it. Views into it (strings, tensors) live as long as the
/// object.
class GgufFile {
 public:
  static GgufFile open(const std::filesystem::path& path);
  /// A file in memory, e.g. the embedded demo model. `bytes` must outlive the object and start at a multiple of 8; `name` is for messages.
  static GgufFile from_memory(std::span<const std::byte> bytes, std::string name);

  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;
  ~GgufFile();

  const std::string& name() const;
  uint32_t version() const;
  size_t file_bytes() const;  ///< all parts together

  /// Throws FileError if a file shrank, or could not be read, since it was opened. What is lost reads as
  /// zeros, never as a crash, so whoever takes data from the file calls this afterwards: a loader when it has
  /// copied the weights, an engine that reads them in place with every step. Costs a system call a part.
  void check_intact() const;

  struct Entry {
    std::string_view key;
    GgufType type;
    GgufType element_type;  ///< of an array; else equal to type
    uint64_t count;         ///< elements of an array; else 1
  };
  std::span<const Entry> metadata() const;
  bool has(std::string_view key) const;

  /// Typed getters. Absent key: nullopt (or FileError for the require_ forms); present with another type:
  /// FileError. Integers of any width and sign are accepted for both integer getters if the value fits.
  std::optional<int64_t> get_int(std::string_view key) const;
  std::optional<double> get_float(std::string_view key) const;  ///< f32 or f64
  std::optional<bool> get_bool(std::string_view key) const;
  std::optional<std::string_view> get_string(std::string_view key) const;
  int64_t require_int(std::string_view key) const;
  double require_float(std::string_view key) const;
  std::string_view require_string(std::string_view key) const;

  /// Arrays; empty when the key is absent.
  std::vector<std::string_view> get_strings(std::string_view key) const;
  std::vector<int64_t> get_ints(std::string_view key) const;  ///< any integer or bool element type
  std::vector<float> get_floats(std::string_view key) const;

  /// Tensors in file order, across parts. GGUF dims [ne0, ne1, ne2] become cols = ne0, rows = ne1, count =
  /// ne2 (4D is refused).
  std::span<const HostTensor> tensors() const;
  const HostTensor* find_tensor(std::string_view name) const;

  /// A short rendering of a value for people ("[string x 3] a, b, c", "llama", "1e-05"): one line, arrays and
  /// long strings shortened, control characters escaped. Throws FileError if the key is absent.
  std::string describe(std::string_view key) const;

 private:
  struct Impl;
  explicit GgufFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace minfer
