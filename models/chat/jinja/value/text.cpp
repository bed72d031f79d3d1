#include "models/chat/jinja/value/text.h"

#include <algorithm>

namespace minfer::jinja {

Origin Text::origin_at(size_t position) const {
  const auto flip = std::upper_bound(flips_.begin(), flips_.end(), position);
  return origin_after(static_cast<size_t>(flip - flips_.begin()));
}

void Text::append(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  if (empty()) {
    first_ = origin;
  } else if (origin_after(flips_.size()) != origin) {
    flips_.push_back(size());
  }
  bytes_ += bytes;
}

void Text::append(const Text& other, size_t begin, size_t size) {
  const size_t end = begin + size;
  while (begin < end) {
    const auto flip = std::upper_bound(other.flips_.begin(), other.flips_.end(), begin);
    const size_t stop = flip == other.flips_.end() ? end : std::min(*flip, end);
    append(std::string_view(other.bytes_).substr(begin, stop - begin),
           other.origin_after(static_cast<size_t>(flip - other.flips_.begin())));
    begin = stop;
  }
}

void Text::repeat(const Text& text, size_t count) {
  if (text.empty()) return;
  Rendering::require(count, text.size());
  Rendering::step(count / 8);
  bytes_.reserve(size() + count * text.size());
  for (size_t i = 0; i < count; ++i)
    append(text);
}

Text Text::substr(size_t begin, size_t size) const {
  Text part;
  part.bytes_.reserve(size);
  part.append(*this, begin, size);
  return part;
}

}  // namespace minfer::jinja
