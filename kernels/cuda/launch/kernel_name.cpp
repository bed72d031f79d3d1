#include "kernels/cuda/launch/kernel_name.h"

#include <cstdlib>
#include <memory>
#include <string_view>

#include <cxxabi.h>

namespace minfer::cuda {
namespace {

void remove_all(std::string& text, std::string_view part) {
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at))
    text.erase(at, part.size());
}

/// The start of the parameter list: the last parenthesis that opens at depth 0.
size_t parameters_of(std::string_view text) {
  int depth = 0;
  for (size_t i = text.size(); i-- > 0;) {
    if (text[i] == ')' || text[i] == '>') ++depth;
    if (text[i] == '(' || text[i] == '<') --depth;
    if (text[i] == '(' && depth == 0) return i;
  }
  return text.size();
}

}  // namespace

std::string kernel_name(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), &std::free);
  if (status != 0 || demangled == nullptr) return symbol;
  std::string text = demangled.get();
  remove_all(text, "(anonymous namespace)::");
  remove_all(text, "minfer::cuda::");
  remove_all(text, "minfer::");
  if (text.ends_with(')')) text.erase(parameters_of(text));
  if (text.starts_with("void ")) text.erase(0, 5);
  return text;
}

}  // namespace minfer::cuda
