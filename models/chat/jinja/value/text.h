#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "models/chat/jinja/value/rendering.h"

namespace minfer::jinja {

/// The writer of a byte: the template (including texts that it makes), or the request that it renders.
enum class Origin : uint8_t { source, request };

/// A string that knows the origin of each byte. Most strings have one origin and cost no more than
/// their bytes; a mixed one lists the places where the origin changes.
class Text {
 public:
  Text() = default;
  Text(std::string_view bytes, Origin origin) : bytes_(bytes), first_(origin) {}
  /// A text made by the template.
  explicit Text(std::string_view bytes) : bytes_(bytes) {}

  std::string_view bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  /// Marked as safe HTML by the filters `safe` and `escape`: `+` with such a text escapes the other side.
  bool is_markup() const { return is_markup_; }
  void set_markup(bool markup) { is_markup_ = markup; }

  Origin origin_at(size_t position) const;
  void append(std::string_view bytes, Origin origin = Origin::source);
  void append(const Text& other) { append(other, 0, other.size()); }
  /// Bytes [begin, begin + size) of `other`, which lie inside it.
  void append(const Text& other, size_t begin, size_t size);
  /// Appends `text` `count` times. Throws before memory is taken if the result is too large.
  void repeat(const Text& text, size_t count);
  Text substr(size_t begin, size_t size) const;
  /// Every byte replaced by `map(byte)`, of the same origin.
  template <class Map>
  Text map_bytes(Map map) const {
    Text mapped = *this;
    for (char& byte : mapped.bytes_)
      byte = map(byte);
    return mapped;
  }

  size_t num_runs() const { return flips_.size() + 1; }
  /// Calls `visit(bytes, origin)` for each stretch of one origin, in order.
  template <class Visit>
  void for_each_run(Visit visit) const {
    for (size_t begin = 0, i = 0; begin < size(); ++i) {
      const size_t end = i < flips_.size() ? flips_[i] : size();
      visit(std::string_view(bytes_).substr(begin, end - begin), origin_after(i));
      begin = end;
    }
  }

 private:
  Origin origin_after(size_t num_flips) const {
    const bool flipped = num_flips % 2 == 1;
    return flipped == (first_ == Origin::source) ? Origin::request : Origin::source;
  }

  String bytes_;
  Vector<size_t> flips_;  // ascending positions inside the text where the origin is another than before
  Origin first_ = Origin::source;
  bool is_markup_ = false;
};

}  // namespace minfer::jinja
