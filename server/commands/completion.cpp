#include <vector>

#include <fmt/ranges.h>

#include "server/commands/args/options.h"
#include "server/commands/commands.h"
#include "server/terminal/terminal.h"

namespace minfer {
namespace {

enum class Value { none, any, file, choice };

struct CompletedOption {
  std::vector<std::string> names;  ///< with their dashes
  std::string description;
  Value value = Value::any;
  std::vector<std::string> choices;
};

struct CompletedCommand {
  std::string path;  ///< e.g. "profile report"; the program's own is empty
  std::string description;
  std::vector<CompletedOption> options;
  std::vector<std::string> commands;  ///< names of those inside
};

/// The beginning of a description, as one line without characters that shells treat specially.
std::string brief(const std::string& description) {
  constexpr size_t kLongest = 70;
  std::string text = description.substr(0, description.find_first_of("\n;("));
  if (text.size() > kLongest) text.resize(text.rfind(' ', kLongest));
  std::erase_if(text, [](char c) { return c == '\'' || c == '"' || c == '\\' || c == '`' || c == '$'; });
  text.erase(text.find_last_not_of(" .,:") + 1);
  return text;
}

/// The names between braces that one_of() describes itself with.
std::vector<std::string> choices_in(const std::string& type) {
  const size_t open = type.find('{'), close = type.find('}');
  if (open == std::string::npos || close == std::string::npos) return {};
  return CLI::detail::split(type.substr(open + 1, close - open - 1), ',');
}

CompletedOption describe(const CLI::Option& option) {
  CompletedOption described{
      .names = {}, .description = brief(option.get_description()), .value = Value::any, .choices = {}};
  for (const std::string& name : option.get_lnames())
    described.names.push_back("--" + name);
  for (const std::string& name : option.get_snames())
    described.names.push_back("-" + name);
  const std::string type = option.get_type_name();
  described.choices = choices_in(type);
  const auto takes = [&](const char* name) { return option.check_name(name); };
  const bool is_file = type.find("FILE") != std::string::npos || type.find("DIR") != std::string::npos ||
                       takes("--model") || takes("--tokenizer") || takes("--logits") || takes("--chat") ||
                       takes("--profile-out") || takes("--result-filename");
  if (option.get_items_expected_max() == 0) {
    described.value = Value::none;
  } else if (!described.choices.empty()) {
    described.value = Value::choice;
  } else if (is_file) {
    described.value = Value::file;
  }
  return described;
}

void collect(const CLI::App& app, const std::string& path, std::vector<CompletedCommand>& commands) {
  CompletedCommand command{
      .path = path, .description = brief(app.get_description()), .options = {}, .commands = {}};
  for (const CLI::Option* option : app.get_options()) {
    if (option->nonpositional()) command.options.push_back(describe(*option));
  }
  const auto inner = app.get_subcommands([](const CLI::App* inside) { return !inside->get_group().empty(); });
  for (const CLI::App* inside : inner)
    command.commands.push_back(inside->get_name());
  commands.push_back(std::move(command));
  for (const CLI::App* inside : inner)
    collect(*inside, path.empty() ? inside->get_name() : path + " " + inside->get_name(), commands);
}

std::vector<CompletedCommand> commands_of(const CLI::App& app) {
  std::vector<CompletedCommand> commands;
  collect(app, "", commands);
  return commands;
}

std::string names_of(const CompletedCommand& command) {
  std::vector<std::string> names;
  for (const CompletedOption& option : command.options)
    names.insert(names.end(), option.names.begin(), option.names.end());
  return fmt::format("{}", fmt::join(names, " "));
}

/// The cases that find the command which the words name, in a shell's loop over the words, e.g. `":run") command="run" ;;`.
std::string command_cases(const std::vector<CompletedCommand>& commands) {
  std::string text;
  for (const CompletedCommand& command : commands) {
    for (const std::string& inner : command.commands) {
      text += fmt::format("      \"{}:{}\") command=\"{}{}{}\" ;;\n", command.path, inner, command.path,
                          command.path.empty() ? "" : " ", inner);
    }
  }
  return text;
}

/// For each option with a value, `"run:--device" | "run:-d") ACTION ;;`, where the action depends on the value.
template <class Action>
std::string value_cases(const std::vector<CompletedCommand>& commands, const Action& action) {
  std::string text;
  for (const CompletedCommand& command : commands) {
    for (const CompletedOption& option : command.options) {
      if (option.value == Value::none) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names)
        patterns.push_back(fmt::format("\"{}:{}\"", command.path, name));
      text += fmt::format("    {}) {} ;;\n", fmt::join(patterns, " | "), action(option));
    }
  }
  return text;
}

constexpr const char* kBash = R"(# bash completion for minfer, made by `minfer completion bash`
_minfer() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} command= options= commands= i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$command:${{COMP_WORDS[i]}}" in
{}    esac
  done
  case "$command:$previous" in
{}  esac
  case "$command" in
{}  esac
  if [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
  elif [[ -n $commands ]]; then
    COMPREPLY=($(compgen -W "$commands" -- "$word"))
  else
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$word"))
  fi
}}
complete -F _minfer minfer
)";

constexpr const char* kZsh = R"(#compdef minfer
# zsh completion for minfer, made by `minfer completion zsh`
_minfer() {{
  local command= i
  local -a options commands
  for ((i = 2; i < CURRENT; ++i)); do
    case "$command:$words[i]" in
{}    esac
  done
  case "$command:$words[CURRENT-1]" in
{}  esac
  case "$command" in
{}  esac
  if [[ $PREFIX == -* ]]; then
    _describe -o option options
  elif (( $#commands )); then
    _describe command commands
  else
    _files
  fi
}}
_minfer "$@"
)";

constexpr const char* kFish = R"(# fish completion for minfer, made by `minfer completion fish`
function __minfer_command_is
  set -l command ''
  for word in (commandline -opc)[2..]
    switch "$command:$word"
{}    end
  end
  test "$command" = "$argv[1]"
end
)";

std::string bash_completion(const CLI::App& app) {
  const std::vector<CompletedCommand> commands = commands_of(app);
  const auto action = [](const CompletedOption& option) -> std::string {
    if (option.value == Value::file) {
      return R"(compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$word")); return)";
    }
    if (option.value == Value::any) return "return";
    return fmt::format(R"(COMPREPLY=($(compgen -W "{}" -- "$word")); return)",
                       fmt::join(option.choices, " "));
  };
  std::string words;
  for (const CompletedCommand& command : commands) {
    words += fmt::format("    \"{}\") options=\"{}\" commands=\"{}\" ;;\n", command.path, names_of(command),
                         fmt::join(command.commands, " "));
  }
  return fmt::format(kBash, command_cases(commands), value_cases(commands, action), words);
}

std::string zsh_completion(const CLI::App& app) {
  const std::vector<CompletedCommand> commands = commands_of(app);
  const auto action = [](const CompletedOption& option) -> std::string {
    if (option.value == Value::file) return "_files; return";
    if (option.value == Value::any) return "return";
    return fmt::format("compadd {}; return", fmt::join(option.choices, " "));
  };
  std::string words;
  for (const CompletedCommand& command : commands) {
    words += fmt::format("    \"{}\")\n      options=(\n", command.path);
    for (const CompletedOption& option : command.options) {
      for (const std::string& name : option.names)
        words += fmt::format("        '{}:{}'\n", name, option.description);
    }
    words += "      )\n      commands=(\n";
    for (const CompletedCommand& inner : commands) {
      const size_t space = inner.path.rfind(' ');
      const std::string parent = space == std::string::npos ? "" : inner.path.substr(0, space);
      if (inner.path.empty() || parent != command.path) continue;
      words += fmt::format("        '{}:{}'\n", inner.path.substr(space + 1), inner.description);
    }
    words += "      ) ;;\n";
  }
  return fmt::format(kZsh, command_cases(commands), value_cases(commands, action), words);
}

std::string fish_completion(const CLI::App& app) {
  const std::vector<CompletedCommand> commands = commands_of(app);
  std::string cases, lines;
  for (const CompletedCommand& command : commands) {
    for (const std::string& inner : command.commands) {
      cases += fmt::format("      case '{}:{}'\n        set command '{}{}{}'\n", command.path, inner,
                           command.path, command.path.empty() ? "" : " ", inner);
    }
    const std::string when = fmt::format("complete -c minfer -n \"__minfer_command_is '{}'\"", command.path);
    if (!command.commands.empty()) lines += fmt::format("{} -f\n", when);
    for (const std::string& inner : command.commands)
      lines += fmt::format("{} -a {}\n", when, inner);
    for (const CompletedOption& option : command.options) {
      std::string line = when;
      for (const std::string& name : option.names)
        line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (option.value == Value::any) line += " -x";
      if (option.value == Value::file) line += " -r";
      if (option.value == Value::choice) line += fmt::format(" -x -a '{}'", fmt::join(option.choices, " "));
      lines += fmt::format("{} -d '{}'\n", line, option.description);
    }
  }
  return fmt::format(kFish, cases) + lines;
}

}  // namespace

void add_completion_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("completion", "Print the completion script of a shell")->group("");
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")
      ->check(one_of({"bash", "zsh", "fish"}))
      ->required();
  command->callback([&app, shell] {
    print_output(*shell == "bash"  ? bash_completion(app)
                 : *shell == "zsh" ? zsh_completion(app)
                                   : fish_completion(app));
  });
}

}  // namespace minfer
