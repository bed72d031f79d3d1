// `minfer completion` and `minfer man`: what packages install beside the program.
#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include <boost/algorithm/string/case_conv.hpp>
#include <boost/algorithm/string/replace.hpp>
#include <fmt/ranges.h>

#include "kernels/base/error.h"
#include "server/commands/args/options.h"
#include "server/commands/commands.h"
#include "server/terminal/terminal.h"

namespace minfer {
namespace {

struct Command {
  std::string path;  ///< e.g. "profile report"; the program's own is empty
  const CLI::App* app;
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

/// A command and all commands inside it.
std::vector<Command> commands_of(const CLI::App& app, const std::string& path = "") {
  std::vector<Command> commands{{path, &app}};
  for (const CLI::App* inside : commands_in(app))
    std::ranges::move(commands_of(*inside, path + (path.empty() ? "" : " ") + inside->get_name()),
                      std::back_inserter(commands));
  return commands;
}

/// The groups of options that CLI11 keeps as commands without a name.
std::vector<const CLI::App*> groups_in(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* inside) { return inside->get_name().empty(); });
}

/// A command's options, also those in groups.
std::vector<const CLI::Option*> options_of(const CLI::App& app) {
  std::vector<const CLI::Option*> options;
  for (const CLI::Option* option : app.get_options())
    if (option->nonpositional()) options.push_back(option);
  for (const CLI::App* group : groups_in(app))
    for (const CLI::Option* option : group->get_options())
      if (option != group->get_help_ptr()) options.push_back(option);
  return options;
}

/// With their dashes.
std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_lnames())
    names.push_back("--" + name);
  for (const std::string& name : option.get_snames())
    names.push_back("-" + name);
  return names;
}

bool has_value(const CLI::Option& option) {
  return option.get_items_expected_max() > 0;
}

/// The names between braces that one_of() describes itself with, parted by blanks; empty: any value will do.
std::string choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t open = type.find('{'), close = type.find('}');
  return close == type.npos ? "" : boost::replace_all_copy(type.substr(open + 1, close - open - 1), ",", " ");
}

bool takes_file(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.find("FILE") != std::string::npos || type.find("DIR") != std::string::npos ||
         std::ranges::any_of(
             std::array{"--model", "--tokenizer", "--logits", "--chat", "--profile-out", "--result-filename"},
             [&](const char* name) { return option.check_name(name); });
}

/// The cases that find the command which the words name, in a shell's loop over the words, e.g. `":run") command="run" ;;`. `format` of one
/// takes the path outside, the name, and the path.
std::string command_cases(const std::vector<Command>& commands, std::string_view format) {
  std::string text;
  for (const Command& command : commands) {
    if (command.path.empty()) continue;
    const size_t blank = command.path.rfind(' ');
    const std::string outside = blank == std::string::npos ? "" : command.path.substr(0, blank);
    text += fmt::format(fmt::runtime(format), outside, command.app->get_name(), command.path);
  }
  return text;
}

/// For each option with a value, `"run:--device" | "run:-d") ACTION return ;;`: offer files, or the choices between `before` and `behind`.
std::string value_cases(const std::vector<Command>& commands, const std::string& files,
                        const std::string& before, const std::string& behind) {
  std::string text;
  for (const Command& command : commands) {
    for (const CLI::Option* option : options_of(*command.app)) {
      if (!has_value(*option)) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : names_of(*option))
        patterns.push_back(fmt::format("\"{}:{}\"", command.path, name));
      const std::string choices = choices_of(*option);
      const std::string action = !choices.empty()      ? before + choices + behind
                                 : takes_file(*option) ? files
                                                       : "";
      text += fmt::format("    {}) {}return ;;\n", fmt::join(patterns, " | "), action);
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

constexpr std::string_view kCase = "      \"{}:{}\") command=\"{}\" ;;\n";

std::string bash_completion(const std::vector<Command>& commands) {
  std::string words;
  for (const Command& command : commands) {
    std::vector<std::string> options, names;
    for (const CLI::Option* option : options_of(*command.app))
      std::ranges::move(names_of(*option), std::back_inserter(options));
    for (const CLI::App* inside : commands_in(*command.app))
      names.push_back(inside->get_name());
    words += fmt::format("    \"{}\") options=\"{}\" commands=\"{}\" ;;\n", command.path,
                         fmt::join(options, " "), fmt::join(names, " "));
  }
  return fmt::format(
      kBash, command_cases(commands, kCase),
      value_cases(commands, R"(compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$word")); )",
                  R"(COMPREPLY=($(compgen -W ")", R"(" -- "$word")); )"),
      words);
}

std::string zsh_completion(const std::vector<Command>& commands) {
  std::string words;
  for (const Command& command : commands) {
    words += fmt::format("    \"{}\")\n      options=(\n", command.path);
    for (const CLI::Option* option : options_of(*command.app))
      for (const std::string& name : names_of(*option))
        words += fmt::format("        '{}:{}'\n", name, brief(option->get_description()));
    words += "      )\n      commands=(\n";
    for (const CLI::App* inside : commands_in(*command.app))
      words += fmt::format("        '{}:{}'\n", inside->get_name(), brief(inside->get_description()));
    words += "      ) ;;\n";
  }
  return fmt::format(kZsh, command_cases(commands, kCase),
                     value_cases(commands, "_files; ", "compadd ", "; "), words);
}

std::string fish_completion(const std::vector<Command>& commands) {
  std::string lines;
  for (const Command& command : commands) {
    const std::string when = fmt::format("complete -c minfer -n \"__minfer_command_is '{}'\"", command.path);
    const std::vector<const CLI::App*> inner = commands_in(*command.app);
    if (!inner.empty()) lines += when + " -f\n";
    for (const CLI::App* inside : inner)
      lines += fmt::format("{} -a {}\n", when, inside->get_name());
    for (const CLI::Option* option : options_of(*command.app)) {
      lines += when;
      for (const std::string& name : names_of(*option))
        lines += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      const std::string choices = choices_of(*option);
      if (has_value(*option)) lines += choices.empty() && takes_file(*option) ? " -r" : " -x";
      if (!choices.empty()) lines += fmt::format(" -a '{}'", choices);
      lines += fmt::format(" -d '{}'\n", brief(option->get_description()));
    }
  }
  return fmt::format(kFish, command_cases(commands, "      case '{}:{}'\n        set command '{}'\n")) +
         lines;
}

/// The text as roff prints it: no character commands, no hyphens in place of dashes.
std::string escaped(const std::string& text) {
  static const std::regex kCommand("(^|\n)([.'])");
  const std::string plain = boost::replace_all_copy(boost::replace_all_copy(text, "\\", "\\e"), "-", "\\-");
  return std::regex_replace(plain, kCommand, "$1\\&$2");
}

std::string entry(const std::string& head, const std::string& text) {
  return fmt::format(".TP\n\\fB{}\\fR\n{}\n", escaped(head), escaped(text));
}

/// The options of a group, or the arguments that stand by themselves.
std::string entries_of(const CLI::App& app, const std::string& group, bool positional) {
  const CLI::Formatter formatter;
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    const bool is_of_kind = positional ? option->get_positional() : option->nonpositional();
    if (option->get_group() != group || !is_of_kind) continue;
    text += entry(formatter.make_option_name(option, positional) + formatter.make_option_opts(option),
                  option->get_description());
  }
  return text;
}

std::string man_page(const std::string& name, const CLI::App& app) {
  const std::string command = boost::replace_all_copy(name, "-", " ");
  std::string text =
      fmt::format(".TH {} 1 \"\" \"minfer {}\" \"minfer\"\n.SH NAME\n{} \\- {}\n", boost::to_upper_copy(name),
                  MINFER_VERSION, escaped(name), escaped(app.get_description()));
  const std::vector<const CLI::App*> commands = commands_in(app);
  const std::string arguments = entries_of(app, "Options", true);
  text += fmt::format(".SH SYNOPSIS\n\\fB{}\\fR [OPTIONS]{}{}\n", escaped(command),
                      arguments.empty() ? "" : " [ARGUMENTS]", commands.empty() ? "" : " COMMAND ...");
  if (!arguments.empty()) text += ".SH ARGUMENTS\n" + arguments;
  for (const std::string& group : app.get_groups()) {
    const std::string options = entries_of(app, group, false);
    if (!group.empty() && !options.empty())
      text += fmt::format(".SH {}\n{}", escaped(boost::to_upper_copy(group)), options);
  }
  for (const CLI::App* group : groups_in(app))
    text += fmt::format(".SH {}\n{}\n{}", escaped(boost::to_upper_copy(group->get_group())),
                        escaped(group->get_description()), entries_of(*group, "Options", false));
  if (!commands.empty()) text += ".SH COMMANDS\n";
  for (const CLI::App* inside : commands)
    text += entry(name + "-" + inside->get_name(), inside->get_description());
  if (!app.get_footer().empty()) text += fmt::format(".SH NOTES\n.nf\n{}\n.fi\n", escaped(app.get_footer()));
  return text + ".SH SEE ALSO\nThe documents in the folders of minfer's sources, README.md first.\n";
}

}  // namespace

void add_completion_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("completion", "Print the completion script of a shell")->group("");
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")
      ->check(one_of({"bash", "zsh", "fish"}))
      ->required();
  command->callback([&app, shell] {
    const std::vector<Command> commands = commands_of(app);
    print_output(*shell == "bash"  ? bash_completion(commands)
                 : *shell == "zsh" ? zsh_completion(commands)
                                   : fish_completion(commands));
  });
}

void add_man_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("man", "Print a manual page")->group("");
  const auto name = std::make_shared<std::string>();
  command->add_option("NAME", *name, "minfer, or minfer-COMMAND (default: print the names)");
  command->callback([&app, name] {
    std::string text;
    std::vector<Command> commands = commands_of(app);
    std::ranges::sort(commands, {}, &Command::path);
    for (const Command& described : commands) {
      const std::string path = boost::replace_all_copy(described.path, " ", "-");
      const std::string page = path.empty() ? "minfer" : "minfer-" + path;
      if (name->empty()) text += page + "\n";
      if (*name == page) text = man_page(page, *described.app);
    }
    if (text.empty()) throw Error("man: there is no page \"" + *name + "\"; `minfer man` names them");
    print_output(text);
  });
}

}  // namespace minfer
