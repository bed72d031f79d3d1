#include <map>
#include <memory>
#include <string>
#include <vector>

#include <boost/algorithm/string/case_conv.hpp>
#include <fmt/format.h>

#include "kernels/base/error.h"
#include "server/commands/args/options.h"
#include "server/commands/commands.h"
#include "server/terminal/terminal.h"

namespace minfer {
namespace {

using Pages = std::map<std::string, const CLI::App*>;

/// The text as roff prints it: no character commands, no hyphens in place of dashes.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if ((out.empty() || out.back() == '\n') && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

void collect(const CLI::App& app, const std::string& name, Pages& pages) {
  pages.emplace(name, &app);
  for (const CLI::App* inside : commands_in(app))
    collect(*inside, name + "-" + inside->get_name(), pages);
}

std::string entry(const std::string& head, const std::string& text) {
  return fmt::format(".TP\n\\fB{}\\fR\n{}\n", escaped(head), escaped(text));
}

/// The options of a group, or the arguments that stand by themselves.
std::string options_of(const CLI::App& app, const std::string& group, bool positional) {
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
  const std::string command = CLI::detail::find_and_replace(name, "-", " ");
  std::string text =
      fmt::format(".TH {} 1 \"\" \"minfer {}\" \"minfer\"\n.SH NAME\n{} \\- {}\n", boost::to_upper_copy(name),
                  MINFER_VERSION, escaped(name), escaped(app.get_description()));
  const std::vector<const CLI::App*> commands = commands_in(app);
  const std::string arguments = options_of(app, "Options", true);
  text += fmt::format(".SH SYNOPSIS\n\\fB{}\\fR [OPTIONS]{}{}\n", escaped(command),
                      arguments.empty() ? "" : " [ARGUMENTS]", commands.empty() ? "" : " COMMAND ...");
  if (!arguments.empty()) text += ".SH ARGUMENTS\n" + arguments;
  for (const std::string& group : app.get_groups()) {
    const std::string options = options_of(app, group, false);
    if (!group.empty() && !options.empty())
      text += fmt::format(".SH {}\n{}", escaped(boost::to_upper_copy(group)), options);
  }
  for (const CLI::App* group :
       app.get_subcommands([](const CLI::App* inside) { return inside->get_name().empty(); }))
    text += fmt::format(".SH {}\n{}\n{}", escaped(boost::to_upper_copy(group->get_group())),
                        escaped(group->get_description()), options_of(*group, "Options", false));
  if (!commands.empty()) text += ".SH COMMANDS\n";
  for (const CLI::App* inside : commands)
    text += entry(name + "-" + inside->get_name(), inside->get_description());
  if (!app.get_footer().empty()) text += fmt::format(".SH NOTES\n.nf\n{}\n.fi\n", escaped(app.get_footer()));
  return text + ".SH SEE ALSO\nThe documents in the folders of minfer's sources, README.md first.\n";
}

}  // namespace

void add_man_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("man", "Print a manual page")->group("");
  const auto name = std::make_shared<std::string>();
  command->add_option("NAME", *name, "minfer, or minfer-COMMAND (default: print the names)");
  command->callback([&app, name] {
    Pages pages;
    collect(app, "minfer", pages);
    std::string text;
    for (const auto& [page, described] : pages) {
      if (name->empty()) text += page + "\n";
      if (*name == page) text = man_page(page, *described);
    }
    if (text.empty()) throw Error("man: there is no page \"" + *name + "\"; `minfer man` names them");
    print_output(text);
  });
}

}  // namespace minfer
