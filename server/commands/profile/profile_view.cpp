#include "server/commands/profile/profile_view.h"

#include <filesystem>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "profiling/chrome_trace/trace_output.h"
#include "profiling/page/page_profile.h"
#include "server/commands/args/profile_options.h"
#include "server/page/single_page.h"
#include "server/terminal/terminal.h"

namespace minfer {
namespace {

struct ViewArguments {
  std::string path;
  std::string out;
};

void run_view(const ViewArguments& arguments) {
  require_profile(arguments.path);
  require_other_file(arguments.path, arguments.out);
  PageProfile profile;
  const std::string note = read_profile(arguments.path, profile);
  read_profile(arguments.path, *profile.second_reading());
  const std::string html =
      single_page_html(profile.json(std::filesystem::path(arguments.path).filename().string(), note));
  TraceOutput output(arguments.out);
  output.write(html);
  output.close();
  if (!note.empty()) print_notice(note + "\n");
  print_output(fmt::format("{}: {:.1f} MB; open it in a browser\n", arguments.out,
                           static_cast<double>(html.size()) * 1e-6));
}

}  // namespace

void add_profile_view_command(CLI::App& profile) {
  CLI::App* view = profile.add_subcommand("view", "A profile as a page for a browser, in one file");
  const auto arguments = std::make_shared<ViewArguments>();
  view->add_option("file", arguments->path, "Profile file, as --profile-out writes it")
      ->option_text("FILE")
      ->required();
  view->add_option("-o,--output", arguments->out, "HTML file to write; it needs no network")
      ->option_text("FILE")
      ->required();
  view->footer(
      "The page is the one that `minfer serve` shows: findings, steps, the time from the top down, the "
      "roofline, requests, memory.\n"
      "If there are many steps, it holds the shortest and longest of each bucket and the slowest of all.\n\n"
      "Examples:\n"
      "  minfer bench -p 0 -n 16 --profile-out steps.jsonl\n"
      "  minfer profile view steps.jsonl -o report.html\n"
      "  minfer profile view steps.jsonl --output decode.html");
  view->callback([arguments] { run_view(*arguments); });
}

}  // namespace minfer
