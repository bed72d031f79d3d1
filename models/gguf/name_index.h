#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace minfer {

/// Finds records by name, through sorted hashes. Safe against hostile files: n log n for any names, while buckets
/// degrade with names chosen to collide. And the order depends on hashes in our own memory. So names
/// that change under a mapping, during the sort or later, can at worst give a wrong answer.
class NameIndex {
 public:
  /// `name_of(i)` gives the name of record i < count; the same function goes to find() and duplicate().
  template <class NameOf>
  NameIndex(uint32_t count, const NameOf& name_of) {
    slots_.reserve(count);
    for (uint32_t i = 0; i < count; ++i)
      slots_.push_back({hash(name_of(i)), i});
    std::ranges::sort(slots_);
  }

  /// A name that two records share. Names with equal 64-bit hashes count as the same name. Among the 100,000 names of a file that
  /// happens by chance once in 10^9 files, and a deliberate collision is rightly refused.
  template <class NameOf>
  std::optional<std::string_view> duplicate(const NameOf& name_of) const {
    const auto twice = std::ranges::adjacent_find(slots_, std::ranges::equal_to{}, &Slot::hash);
    if (twice == slots_.end()) return std::nullopt;
    return name_of(twice->record);
  }

  /// The record with that name; valid if duplicate() found none.
  template <class NameOf>
  std::optional<uint32_t> find(std::string_view name, const NameOf& name_of) const {
    const auto found = std::ranges::lower_bound(slots_, hash(name), {}, &Slot::hash);
    if (found == slots_.end() || name_of(found->record) != name) return std::nullopt;
    return found->record;
  }

 private:
  struct Slot {
    uint64_t hash;
    uint32_t record;
    auto operator<=>(const Slot&) const = default;
  };

  /// FNV-1a (http://www.isthe.com/chongo/tech/comp/fnv/).
  static uint64_t hash(std::string_view name) {
    uint64_t value = 0xcbf29ce484222325;
    for (const char c : name)
      value = (value ^ static_cast<uint8_t>(c)) * 0x100000001b3;
    return value;
  }

  std::vector<Slot> slots_;
};

}  // namespace minfer
