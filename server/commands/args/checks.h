#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace minfer {

// Checks of options for CLI::Option::check() and transform(). A refusal says what
// was expected and, if the text looks like a typing error, what may have been meant.

/// One of `names`; `ignore_case` takes upper case too and makes it lower case.
CLI::Validator one_of(std::vector<std::string> names, bool ignore_case = false);

/// Takes one of the names of `values`, in any case; it becomes the number of its value.
template <class Enum>
CLI::Validator one_of(const std::map<std::string, Enum>& values);

/// A file that is there.
CLI::Validator existing_file();

template <class Enum>
CLI::Validator one_of(const std::map<std::string, Enum>& values) {
  std::vector<std::string> names;
  for (const auto& [name, value] : values)
    names.push_back(name);
  const CLI::Validator is_known = one_of(names, true);
  return CLI::Validator(
      [is_known, values](std::string& text) {
        const std::string refusal = is_known(text);
        if (refusal.empty()) text = std::to_string(static_cast<int>(values.at(text)));
        return refusal;
      },
      is_known.get_description());
}

/// The error message for a command line that cannot be understood: the unknown
/// option or command, with what may have been meant, else CLI11's own message.
std::string explain(const CLI::App* app, const CLI::Error& error);

}  // namespace minfer
