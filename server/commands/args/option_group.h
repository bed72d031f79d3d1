#pragma once

#include <string>
#include <utility>

#include <CLI/CLI.hpp>

namespace minfer {

/// One group of a command's options, as the help shows them. Outlived by the command.
class OptionGroup {
 public:
  OptionGroup(CLI::App& command, std::string name) : command_(command), name_(std::move(name)) {}

  /// An option whose default is none, or stands in its description or its option_text().
  template <class Target>
  CLI::Option* add(const std::string& names, Target& target, const std::string& description) const {
    return command_.add_option(names, target, description)->group(name_);
  }
  /// One whose default the help shows: what `target` has now.
  template <class Target>
  CLI::Option* add_with_default(const std::string& names, Target& target,
                                const std::string& description) const {
    return add(names, target, description)->capture_default_str();
  }
  /// One whose values have commas between them. Without allow_extra_args(false), CLI11 would take the argument behind them as another value.
  template <class Target>
  CLI::Option* add_list(const std::string& names, Target& target, const std::string& description) const {
    return add(names, target, description)->delimiter(',')->allow_extra_args(false);
  }
  CLI::Option* add_flag(const std::string& names, bool& target, const std::string& description) const {
    return command_.add_flag(names, target, description)->group(name_);
  }

 private:
  CLI::App& command_;
  std::string name_;
};

}  // namespace minfer
