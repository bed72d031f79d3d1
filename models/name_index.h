#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

namespace minfer {

/// Finds records by name. Sorted rather than hashed: n log n holds for any names, also for those that an
/// attacker chose so that they collide in a hash table, and it costs 4 bytes a record.
class NameIndex {
 public:
  /// `name_of(i)` gives the name of record i < count; the same function goes to find().
  template <class NameOf>
  NameIndex(uint32_t count, const NameOf& name_of) : order_(count) {
    std::iota(order_.begin(), order_.end(), 0U);
    std::ranges::sort(order_, {}, name_of);
  }

  /// A name that two records share.
  template <class NameOf>
  std::optional<std::string_view> duplicate(const NameOf& name_of) const {
    const auto twice = std::ranges::adjacent_find(order_, std::ranges::equal_to{}, name_of);
    if (twice == order_.end()) return std::nullopt;
    return name_of(*twice);
  }

  template <class NameOf>
  std::optional<uint32_t> find(std::string_view name, const NameOf& name_of) const {
    const auto found = std::ranges::lower_bound(order_, name, {}, name_of);
    if (found == order_.end() || std::string_view(name_of(*found)) != name) return std::nullopt;
    return *found;
  }

 private:
  std::vector<uint32_t> order_;
};

}  // namespace minfer
