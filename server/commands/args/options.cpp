#include "server/commands/args/options.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "kernels/base/error.h"
#include "models/decoder/weights/model_source.h"
#include "models/gguf/nearest_name.h"
#include "models/gguf/printable.h"
#include "server/hub/hub_name.h"
#include "server/serving/profile/profile_session.h"

namespace minfer {
namespace {

/// See ModelAndText.
bool names_a_model(const std::string& argument) {
  if (argument.ends_with(".gguf") || argument.starts_with(kSyntheticPrefix) ||
      argument.starts_with(HubName::kPrefix))
    return true;
  std::error_code error;
  if (!std::filesystem::is_regular_file(argument, error)) return false;  // opening a pipe would wait
  char magic[4] = {};
  std::ifstream(argument, std::ios::binary).read(magic, sizeof magic);
  return std::string_view(magic, sizeof magic) == "GGUF";
}

/// The innermost command that the command line names, and how to call it.
struct NamedCommand {
  const CLI::App* app;
  std::string call = "minfer";
};

NamedCommand named_command(const CLI::App* root) {
  NamedCommand command{.app = root};
  for (auto inner = root->get_subcommands(); !inner.empty(); inner = command.app->get_subcommands()) {
    command.app = inner.front();
    command.call += " " + command.app->get_name();
  }
  return command;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands_in(app))
    names.push_back(command->get_name());
  return names;
}

std::string unknown_option(const NamedCommand& command, const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  std::vector<std::string> known;
  for (const CLI::Option* option : command.app->get_options())
    for (const std::string& long_name : option->get_lnames())
      known.push_back("--" + long_name);
  return fmt::format("{}: not an option of {}{}", printable(name), command.call,
                     name.starts_with("--") ? did_you_mean(name, known) : "");
}

std::string unknown_command(const NamedCommand& command, const std::string& argument) {
  const std::vector<std::string> names = command_names(*command.app);
  std::string question = did_you_mean(argument, names);
  if (question.empty() && names_a_model(argument))
    question = fmt::format("; did you mean {} run {}?", command.call, printable(argument));
  return fmt::format("{}: not a command of {}, which has {}{}", printable(argument), command.call,
                     fmt::join(names, ", "), question);
}

/// The first argument that a person would call the mistake, among those that CLI11 could not place; empty: none.
std::string explain_rest(const NamedCommand& command) {
  const std::vector<std::string> rest = command.app->remaining();
  const auto option = std::ranges::find_if(rest, [](const std::string& argument) {
    return argument.size() > 1 && argument.starts_with('-') && argument != "--";
  });
  if (option != rest.end()) return unknown_option(command, *option);
  if (!rest.empty() && !command_names(*command.app).empty()) return unknown_command(command, rest.front());
  return "";
}

double share_of_percent(std::string_view text) {
  const auto number = parse_number<double>(text.substr(0, text.size() - (text.ends_with('%') ? 1 : 0)));
  if (!number || !std::isfinite(*number) || *number < 0.0)
    fail("--fail-above: \"{}\", expected a percentage such as 3%", text);
  return *number / 100.0;
}

}  // namespace

std::vector<const CLI::App*> commands_in(const CLI::App& app) {
  return app.get_subcommands(
      [](const CLI::App* inside) { return !inside->get_group().empty() && !inside->get_name().empty(); });
}

CLI::Validator one_of(std::vector<std::string> names, bool ignore_case) {
  const std::string description = fmt::format("{{{}}}", fmt::join(names, ","));
  return CLI::Validator(
      [names = std::move(names), ignore_case](std::string& text) -> std::string {
        const std::string wanted = ignore_case ? CLI::detail::to_lower(text) : text;
        if (std::ranges::find(names, wanted) == names.end()) {
          return fmt::format("\"{}\", expected one of {}{}", printable(text), fmt::join(names, ", "),
                             did_you_mean(text, names));
        }
        text = wanted;
        return "";
      },
      description);
}

CLI::Validator existing_file() {
  return CLI::Validator(
      [](std::string& path) -> std::string {
        std::error_code error;
        const auto status = std::filesystem::status(path, error);
        if (status.type() == std::filesystem::file_type::not_found)
          return fmt::format("{}: no such file{}", printable(path), did_you_mean_path(path));
        if (std::filesystem::is_directory(status))
          return fmt::format("{}: a folder, expected a file", printable(path));
        return "";
      },
      "FILE");
}

std::string explain(const CLI::App* app, const CLI::Error& error) {
  const NamedCommand command = named_command(app);
  std::string message = explain_rest(command);
  if (message.empty()) message = error.what();
  return fmt::format("minfer: error: {}\nSee {} --help\n", message, command.call);
}

CLI::Option* add_seconds(const OptionGroup& group, const std::string& name, std::chrono::milliseconds& into,
                         double least, const std::string& description) {
  const auto set = [&into](double seconds) {
    into = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
  };
  return add_taken<double>(group, name, set, description, CLI::Range(least, 1e6),
                           Default{std::to_string(into.count() / 1'000)});
}

CLI::Option* add_hub_options(const OptionGroup& group, std::string& model) {
  const auto set_offline = [] { ::setenv("HF_HUB_OFFLINE", "1", 1); };
  group.command
      .add_flag_callback("--offline", set_offline,
                         "ask no hub, as with HF_HUB_OFFLINE=1: use what is in its cache")
      ->group(group.name);
  const auto take_repo = [&model](const std::string& name) { model = std::string(HubName::kPrefix) + name; };
  return add_taken(group, "--hf-repo", take_repo,
                   "a model of a Hugging Face hub, as hf: in front names it; -hf is the same",
                   Shown{"ORG/REPO[:QUANT]"});
}

CLI::Option* add_model_argument(const OptionGroup& group, std::string& model) {
  return add_option(group, "-m,--model,MODEL", model, kModelDescription)
      ->excludes(add_hub_options(group, model));
}

void ModelAndText::add_to(CLI::App& command, const std::string& text_name,
                          const std::string& text_description) {
  command_ = &command;
  text_name_ = text_name;
  command.add_option("-m,--model", model_, kModelDescription);
  add_hub_options({command}, model_)->excludes("--model");
  command.add_option("MODEL", first_,
                     "the same as --model. A single argument is a model if it ends in .gguf, begins with "
                     "synthetic: or hf:, or names a GGUF file; otherwise it is the " +
                         text_name + "; with --model (which may be '') it is always the " + text_name);
  command.add_option(text_name, second_, text_description);
}

void ModelAndText::resolve() {
  const bool one = command_->count("MODEL") > 0, two = command_->count(text_name_) > 0;
  if (command_->count("--model") + command_->count("--hf-repo") > 0) {
    if (two) {
      fail("\"{}\" and \"{}\": expected one argument beside --model; put a text of several words in quotes",
           printable(first_), printable(second_));
    }
    if (one) text_ = first_;
    return;
  }
  if (two) {
    if (!names_a_model(first_) && !std::filesystem::exists(first_)) {
      fail<FileError>(
          "{}: no such file{}; the first of two arguments is the model; put a text of several words in "
          "quotes",
          printable(first_), did_you_mean_path(first_));
    }
    model_ = first_;
    text_ = second_;
  } else if (one) {
    (names_a_model(first_) ? model_ : text_.emplace()) = first_;
  }
}

CLI::Option* ChatArgs::add_to(CLI::App& command) {
  return command.add_option("--chat-template", template_file,
                            "file with the chat template, in Jinja (default: the model's own)");
}

ChatTemplate ChatArgs::open(const ChatTemplateSource& of_model, const Tokenizer& tokenizer) const {
  ChatTemplate chat_template = open_chat_template(template_file, of_model, tokenizer);
  if (template_file.empty() && of_model.text.empty())
    fmt::print(stderr, "the model has no chat template: {}\n", chat_template.name());
  return chat_template;
}

void add_profile_file(CLI::App& command, std::string& path) {
  add_option({command}, "file", path, "Profile file, as --profile-out writes it", Shown{"FILE"})->required();
}

void add_format(CLI::App& command, std::string& format, const std::vector<std::string>& formats) {
  add_option({command}, "-o,--output", format, "How to print it (default table)", one_of(formats),
             Shown{fmt::format("{}", fmt::join(formats, "|"))});
}

void add_step_filter(CLI::App& command, StepFilter& filter) {
  const auto set_steps = [&filter](const std::string& text) {
    filter.steps = parse_step_range("--steps", text);
  };
  add_choice({command}, "--phase", filter.phase, {StepPhase::prefill, StepPhase::decode, StepPhase::mixed},
             "Only the steps that prefill, decode, or do both");
  add_taken({command}, "--steps", set_steps, "Only steps A to B, both included", Shown{"A:B"});
  add_option({command}, "--request", filter.request, "Only steps that served the request of this id",
             Shown{"ID"});
}

void add_fail_above(CLI::App& command, std::optional<double>& share, const std::string& description) {
  const auto set = [&share](const std::string& text) { share = share_of_percent(text); };
  add_taken({command}, "--fail-above", set, description, Shown{"PERCENT"});
}

void require_profile(const std::string& path) {
  if (const std::string refusal = existing_file()(path); !refusal.empty()) fail<FileError>("{}", refusal);
  std::error_code error;  // opening a pipe would wait
  if (!std::filesystem::is_regular_file(path, error) && !error)
    fail<FileError>("{}: a pipe or a device, expected a regular file", printable(path));
}

void require_other_file(const std::string& profile, const std::string& output) {
  std::error_code ignored;
  if (std::filesystem::equivalent(profile, output, ignored))
    fail("--output {}: is the profile itself", output);
}

}  // namespace minfer
