#include "models/decoder/config/config_keys.h"

#include <algorithm>
#include <utility>

namespace minfer {

bool KeyReader::is_array(std::string_view key) const {
  const GgufFile::Entry* entry = file_.find(full_key(key));
  return entry != nullptr && entry->type == GgufType::array;
}

int32_t KeyReader::in_range(std::string_view key, int64_t value, int64_t low, int64_t high) const {
  if (value < low || value > high) {
    refuse(key, "is {}, expected {} to {}", value, low, high);
  }
  return static_cast<int32_t>(value);
}

float KeyReader::in_range(std::string_view key, double value, double low, double high) const {
  const auto number = static_cast<float>(value);  // 1.001 as a float may be below 1.001 as a double
  if (!(number >= static_cast<float>(low) && number <= static_cast<float>(high))) {
    refuse(key, "is {}, expected {} to {}", value, low, high);
  }
  return number;
}

void KeyReader::require_one_a_layer(std::string_view key, size_t found, int32_t num_layers) const {
  if (std::cmp_equal(found, num_layers)) return;
  refuse(key, "has {} elements, expected one for each of {} layers", found, num_layers);
}

int32_t KeyReader::positive(std::string_view key, std::optional<int64_t> fallback) const {
  return ranged(key, 1, kMaxDimension, fallback);
}

int32_t KeyReader::ranged(std::string_view key, int64_t low, int64_t high,
                          std::optional<int64_t> fallback) const {
  return in_range(key, require(key, file_.get_int(full_key(key)), fallback), low, high);
}

int32_t KeyReader::same_in_all_layers(std::string_view key, int32_t num_layers, int64_t high,
                                      std::optional<int64_t> fallback) const {
  if (!is_array(key)) return ranged(key, 1, high, fallback);
  const std::vector<int64_t> values = file_.get_ints(full_key(key));
  require_one_a_layer(key, values.size(), num_layers);
  const auto other = std::ranges::adjacent_find(values, std::not_equal_to());
  if (other != values.end()) {
    refuse(key, "differs between layers ({} and {}): not supported", other[0], other[1]);
  }
  return in_range(key, values.front(), 1, high);
}

std::vector<int32_t> KeyReader::of_layers(std::string_view key, int32_t num_layers, int64_t high,
                                          std::optional<int64_t> fallback, int64_t low) const {
  if (!is_array(key))
    return std::vector<int32_t>(static_cast<size_t>(num_layers), ranged(key, low, high, fallback));
  const std::vector<int64_t> values = file_.get_ints(full_key(key));
  require_one_a_layer(key, values.size(), num_layers);
  std::vector<int32_t> of_layers;
  for (const int64_t value : values)
    of_layers.push_back(in_range(key, value, low, high));
  return of_layers;
}

std::vector<bool> KeyReader::flags_of_layers(std::string_view key, int32_t num_layers) const {
  const std::vector<int64_t> values = file_.get_ints(full_key(key));
  require_one_a_layer(key, values.size(), num_layers);
  std::vector<bool> flags;
  for (const int64_t value : values)
    flags.push_back(in_range(key, value, 0, 1) == 1);
  return flags;
}

float KeyReader::positive_float(std::string_view key, std::optional<double> fallback) const {
  return float_in_range(key, kMinNumber, fallback);
}

float KeyReader::float_in_range(std::string_view key, double low, std::optional<double> fallback,
                                double high) const {
  return in_range(key, require(key, file_.get_float(full_key(key)), fallback), low, high);
}

std::vector<float> KeyReader::floats_of_layers(std::string_view key, int32_t num_layers, double low) const {
  if (!is_array(key)) {
    return std::vector<float>(static_cast<size_t>(num_layers),
                              float_in_range(key, low, std::nullopt, kMaxNumber));
  }
  std::vector<float> values = file_.get_floats(full_key(key));
  require_one_a_layer(key, values.size(), num_layers);
  for (const float value : values)
    in_range(key, static_cast<double>(value), low, kMaxNumber);
  return values;
}

}  // namespace minfer
