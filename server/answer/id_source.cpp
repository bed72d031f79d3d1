#include "server/answer/id_source.h"

namespace minfer {

std::string IdSource::draw(std::string_view prefix, int length) {
  constexpr std::string_view kLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::uniform_int_distribution<size_t> place(0, kLetters.size() - 1);
  std::string id(prefix);
  for (int i = 0; i < length; ++i)
    id += kLetters[place(random_)];
  return id;
}

}  // namespace minfer
