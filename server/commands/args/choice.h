#pragma once

#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "server/commands/args/checks.h"

namespace minfer {

/// Adds an option that takes the name of one of `values`.
template <class Target, class Enum, size_t N>
CLI::Option* add_choice(CLI::App* command, const std::string& flags, Target& target, const Enum (&values)[N],
                        const std::string& description) {
  std::map<std::string, Enum> by_name;
  std::vector<std::string> names;
  for (const Enum value : values) {
    names.emplace_back(name(value));
    by_name.emplace(names.back(), value);
  }
  const auto choose = [&target, by_name](const std::string& chosen) { target = by_name.at(chosen); };
  return command->add_option_function<std::string>(flags, choose, description)
      ->check(one_of(names))
      ->option_text(fmt::format("{}", fmt::join(names, "|")));
}

}  // namespace minfer
