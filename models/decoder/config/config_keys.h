#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/error.h"
#include "models/gguf/gguf.h"

namespace minfer {

/// Bounds of every value that is later multiplied into a size: far above real models and far below overflow.
inline constexpr int32_t kMaxDimension = 1 << 24;
inline constexpr int32_t kMaxLayers = 1000;
inline constexpr int64_t kMaxHeads = 4096;
inline constexpr int64_t kMaxHeadSize = 1024;
inline constexpr int64_t kMaxExperts = 1024;

/// Bounds of every real number; outside them, f32 arithmetic overflows or underflows.
inline constexpr double kMinNumber = 1e-12;
inline constexpr double kMaxNumber = 1e12;

/// Reads PREFIX.* keys of a file's metadata and checks their ranges. Throws FileError naming the key, the expected and the found value, if
/// a key without a fallback is missing, or if a value has another type or is out of range. The file must outlive it.
class KeyReader {
 public:
  KeyReader(const GgufFile& file, std::string_view prefix) : file_(file), prefix_(prefix) {}

  int32_t positive(std::string_view key, std::optional<int64_t> fallback = std::nullopt) const;
  int32_t ranged(std::string_view key, int64_t low, int64_t high,
                 std::optional<int64_t> fallback = std::nullopt) const;
  /// A number for all layers, or an array with one for each. The decoder needs the same value in all layers, so an array must be constant.
  int32_t same_in_all_layers(std::string_view key, int32_t num_layers, int64_t high,
                             std::optional<int64_t> fallback = std::nullopt) const;
  /// The same if layers may differ: returns a number for each.
  std::vector<int32_t> of_layers(std::string_view key, int32_t num_layers, int64_t high,
                                 std::optional<int64_t> fallback = std::nullopt, int64_t low = 1) const;
  /// The layers of some kind: an array with 0 or 1 for each layer.
  std::vector<bool> flags_of_layers(std::string_view key, int32_t num_layers) const;

  float positive_float(std::string_view key, std::optional<double> fallback = std::nullopt) const;
  float float_in_range(std::string_view key, double low, std::optional<double> fallback = std::nullopt,
                       double high = kMaxNumber) const;
  /// An array with a number of at least `low` for each layer, or one number for all.
  std::vector<float> floats_of_layers(std::string_view key, int32_t num_layers,
                                      double low = -kMaxNumber) const;

  const GgufFile& file() const { return file_; }
  bool flag(std::string_view key) const { return file_.get_bool(full_key(key)).value_or(false); }
  bool has(std::string_view key) const { return file_.has(full_key(key)); }
  bool is_array(std::string_view key) const;
  /// Throws FileError: the file, the key, and what is wrong with it.
  template <class... Args>
  [[noreturn]] void refuse(std::string_view key, fmt::format_string<Args...> what, Args&&... args) const {
    fail<FileError>("{}: {} {}", file_.name(), full_key(key), fmt::format(what, std::forward<Args>(args)...));
  }
  std::string full_key(std::string_view key) const { return fmt::format("{}.{}", prefix_, key); }

 private:
  template <class T>
  T require(std::string_view key, const std::optional<T>& found, const std::optional<T>& fallback) const {
    if (!found && !fallback) fail<FileError>("{}: key {} is missing", file_.name(), full_key(key));
    return found ? *found : *fallback;
  }
  int32_t in_range(std::string_view key, int64_t value, int64_t low, int64_t high) const;
  float in_range(std::string_view key, double value, double low, double high) const;
  void require_one_a_layer(std::string_view key, size_t found, int32_t num_layers) const;

  const GgufFile& file_;
  std::string_view prefix_;
};

}  // namespace minfer
