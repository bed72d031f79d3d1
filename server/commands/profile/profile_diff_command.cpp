#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "profiling/diff/profile_diff.h"
#include "server/commands/args/options.h"
#include "server/commands/args/profile_options.h"
#include "server/commands/profile/profile_commands.h"
#include "server/terminal/terminal.h"

namespace minfer {
namespace {

struct DiffArguments {
  DiffNames paths;
  DiffFormat format = DiffFormat::table;
  std::optional<double> fail_above;  ///< e.g. 0.03
};

void read_sums(const std::string& path, DiffSums& sums) {
  require_profile(path);
  read_profile(path, sums);
}

void run_diff(const DiffArguments& arguments) {
  DiffSums a, b;
  read_sums(arguments.paths.a, a);
  read_sums(arguments.paths.b, b);
  const ProfileDiff diff = diff_of(a, b);
  print_output(render_diff(diff, arguments.paths, arguments.format));
  if (arguments.fail_above && diff.step.change() > *arguments.fail_above) {
    fail("B is slower by {:.2f} % a token, more than {:.2f} %{}", 100.0 * diff.step.change(),
         100.0 * *arguments.fail_above,
         diff.step.is_certain()      ? ""
         : diff.step.margin_us < 0.0 ? " (the spread is not known)"
                                     : " (within the spread)");
  }
}

}  // namespace

void add_profile_diff_command(CLI::App& profile) {
  CLI::App* diff =
      profile.add_subcommand("diff", "What changed from one profile to another, and what explains it");
  const auto arguments = std::make_shared<DiffArguments>();
  diff->add_option("a", arguments->paths.a, "Profile file of the baseline")->option_text("A")->required();
  diff->add_option("b", arguments->paths.b, "Profile file to compare with it")->option_text("B")->required();
  add_choice(diff, "-o,--output", arguments->format, {DiffFormat::table, DiffFormat::json, DiffFormat::md},
             "How to print it (default table)");
  add_fail_above(*diff, arguments->fail_above,
                 "Exit with code 1 if a token takes more than this much longer in B than in A, e.g. 3%");
  diff->footer(
      "Examples:\n"
      "  minfer bench -p 0 -n 16 --profile-out before.jsonl\n"
      "  minfer bench -p 0 -n 16 --threads 1 --profile-out after.jsonl\n"
      "  minfer profile diff before.jsonl after.jsonl\n"
      "  minfer profile diff before.jsonl after.jsonl -o md");
  diff->callback([arguments] { run_diff(*arguments); });
}

}  // namespace minfer
