#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace minfer {

/// One group of a command's options, as the help shows them. Outlived by the command.
struct OptionGroup {
  CLI::App& command;
  std::string name;
};

/// Adds an option without a default, or with a default named in its description or its option_text().
template <class Target>
CLI::Option* add_option(const OptionGroup& group, const std::string& names, Target& target,
                        const std::string& description) {
  return group.command.add_option(names, target, description)->group(group.name);
}
/// Adds an option whose default, the current value of `target`, the help shows.
template <class Target>
CLI::Option* add_with_default(const OptionGroup& group, const std::string& names, Target& target,
                              const std::string& description) {
  return add_option(group, names, target, description)->capture_default_str();
}
/// Adds an option with comma-separated values. Without allow_extra_args(false), CLI11 would take the next argument as another value.
template <class Target>
CLI::Option* add_list(const OptionGroup& group, const std::string& names, Target& target,
                      const std::string& description) {
  return add_option(group, names, target, description)->delimiter(',')->allow_extra_args(false);
}
inline CLI::Option* add_flag(const OptionGroup& group, const std::string& names, bool& target,
                             const std::string& description) {
  return group.command.add_flag(names, target, description)->group(group.name);
}

}  // namespace minfer
