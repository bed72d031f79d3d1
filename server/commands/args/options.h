#pragma once

#include <charconv>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include "models/chat/chat_template.h"
#include "profiling/summary/summary.h"

namespace minfer {

// How commands define their options. A refusal says what was expected and, if the text
// looks like a typing error, what may have been meant.

/// The number that a text is; absent: it is none.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

/// One of `names`; `ignore_case` takes upper case too and makes it lower case.
CLI::Validator one_of(std::vector<std::string> names, bool ignore_case = false);

/// Takes one of these names, in any case; it becomes the number of its value.
template <class Enum>
CLI::Validator one_of(const std::vector<std::pair<std::string, Enum>>& values) {
  std::vector<std::string> names;
  for (const auto& [name, value] : values)
    names.push_back(name);
  const CLI::Validator is_known = one_of(names, true);
  return CLI::Validator(
      [is_known, values](std::string& text) {
        const std::string refusal = is_known(text);
        for (const auto& [name, value] : values)
          if (name == text) text = std::to_string(static_cast<int>(value));
        return refusal;
      },
      is_known.get_description());
}

/// A file that is there.
CLI::Validator existing_file();

/// The error message for a command line that cannot be understood: the unknown
/// option or command, with what may have been meant, else CLI11's own message.
std::string explain(const CLI::App* app, const CLI::Error& error);

/// The commands inside a command that its help lists. A group of options, which CLI11 keeps among them, has no name.
std::vector<const CLI::App*> commands_in(const CLI::App& app);

/// One group of a command's options, as the help shows them. Outlived by the command.
struct OptionGroup {
  CLI::App& command;
  std::string name = "Options";
};

// The rules of an option stand behind its description: checks of its values, other options that it needs, and the texts below.

/// Text behind the option's names in the help, in place of its type: "SIZE [20GiB]".
struct Shown {
  std::string text;
};
/// The default that the help shows.
struct Default {
  std::string text;
};

inline void add_rule(CLI::Option* option, const CLI::Validator& check) {
  option->transform(check);
}
inline void add_rule(CLI::Option* option, CLI::Option* needed) {
  option->needs(needed);
}
inline void add_rule(CLI::Option* option, const Shown& shown) {
  option->option_text(shown.text);
}
inline void add_rule(CLI::Option* option, const Default& shown) {
  option->default_str(shown.text);
}

/// Adds an option without a default, or with a default named in its description or its rules.
template <class Target, class... Rules>
CLI::Option* add_option(const OptionGroup& group, const std::string& names, Target& target,
                        const std::string& description, const Rules&... rules) {
  CLI::Option* option = group.command.add_option(names, target, description)->group(group.name);
  (add_rule(option, rules), ...);
  return option;
}
/// Adds an option whose default, the current value of `target`, the help shows.
template <class Target, class... Rules>
CLI::Option* add_with_default(const OptionGroup& group, const std::string& names, Target& target,
                              const std::string& description, const Rules&... rules) {
  return add_option(group, names, target, description, rules...)->capture_default_str();
}
/// Adds an option whose value `take(const Value&)` reads.
template <class Value = std::string, class Take, class... Rules>
CLI::Option* add_taken(const OptionGroup& group, const std::string& names, Take take,
                       const std::string& description, const Rules&... rules) {
  CLI::Option* option = group.command.add_option_function<Value>(names, take, description)->group(group.name);
  (add_rule(option, rules), ...);
  return option;
}
/// Adds an option with comma-separated values. Without allow_extra_args(false), CLI11 would take the next argument as another value.
template <class Target, class... Rules>
CLI::Option* add_list(const OptionGroup& group, const std::string& names, Target& target,
                      const std::string& description, const Rules&... rules) {
  return add_option(group, names, target, description, rules...)->delimiter(',')->allow_extra_args(false);
}
template <class... Rules>
CLI::Option* add_flag(const OptionGroup& group, const std::string& names, bool& target,
                      const std::string& description, const Rules&... rules) {
  CLI::Option* option = group.command.add_flag(names, target, description)->group(group.name);
  (add_rule(option, rules), ...);
  return option;
}
/// Adds an option that takes the name() of one of `values`.
template <class Target, class Enum, size_t N>
CLI::Option* add_choice(const OptionGroup& group, const std::string& flags, Target& target,
                        const Enum (&values)[N], const std::string& description) {
  std::vector<std::pair<std::string, Enum>> by_name;
  std::vector<std::string_view> names;
  for (const Enum value : values) {
    by_name.emplace_back(name(value), value);
    names.push_back(name(value));
  }
  return add_option(group, flags, target, description, one_of(by_name),
                    Shown{fmt::format("{}", fmt::join(names, "|"))});
}

/// Adds an option of `least` to 1e6 seconds, perhaps with a fraction; the help shows the current value of `into`, whole seconds.
CLI::Option* add_seconds(const OptionGroup& group, const std::string& name, std::chrono::milliseconds& into,
                         double least, const std::string& description);

// The options that name models, templates and profiles.

inline constexpr const char* kModelDescription =
    "GGUF file, hf:ORG/REPO[:QUANT] for a file of a Hugging Face hub, or synthetic:NAME[:TYPE] for random "
    "weights of a known shape (default: the demo model inside the binary)";

/// Adds --hf-repo (-hf), another way to name the model of a hub, and --offline. The command has --model, unless it has only a positional
/// argument.
CLI::Option* add_hub_options(const OptionGroup& group, std::string& model);

/// Adds `-m,--model`, also as the first positional argument, MODEL, and the options of hubs. An empty model is the demo model.
CLI::Option* add_model_argument(const OptionGroup& group, std::string& model);

/// The arguments of commands with a model and a text, [MODEL] [TEXT]. Either may be left out. A single argument is a model if it ends in
/// .gguf, begins with "synthetic:" or "hf:", or names a file that begins as a GGUF file does.
class ModelAndText {
 public:
  /// Adds `-m,--model`, MODEL and the text under the name `text_name`. The commands' object outlives `command`.
  void add_to(CLI::App& command, const std::string& text_name, const std::string& text_description);
  /// Once the command line is parsed: tells the model from the text. Throws Error if both arguments can only be texts.
  void resolve();

  const std::string& model() const { return model_; }
  const std::optional<std::string>& text() const { return text_; }

 private:
  const CLI::App* command_ = nullptr;
  std::string text_name_, model_, first_, second_;
  std::optional<std::string> text_;
};

/// The chat template, for the commands that render conversations.
struct ChatArgs {
  std::string template_file;  ///< empty: the model's own

  CLI::Option* add_to(CLI::App& command);
  /// The template; a line on standard error says so if the model has none.
  ChatTemplate open(const ChatTemplateSource& of_model, const Tokenizer& tokenizer) const;
};

/// Adds the profile that a command reads.
void add_profile_file(CLI::App& command, std::string& path);
/// Adds -o, which takes one of `formats`.
void add_format(CLI::App& command, std::string& format, const std::vector<std::string>& formats);
/// --phase, --steps and --request.
void add_step_filter(CLI::App& command, StepFilter& filter);

/// --fail-above: a percentage, "3%" or "3", as a share.
void add_fail_above(CLI::App& command, std::optional<double>& share, const std::string& description);

/// Throws FileError if there is no file to read.
void require_profile(const std::string& path);

/// Throws Error if the file to write is the profile that is read.
void require_other_file(const std::string& profile, const std::string& output);

}  // namespace minfer
