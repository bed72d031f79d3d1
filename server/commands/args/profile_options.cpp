#include "server/commands/args/profile_options.h"

#include <charconv>
#include <cmath>
#include <filesystem>

#include "kernels/base/error.h"
#include "models/gguf/printable.h"
#include "server/commands/args/options.h"
#include "server/serving/profile/profile_session.h"

namespace minfer {
namespace {

double share_of_percent(const std::string& text) {
  double number = 0.0;
  const char* end = text.data() + text.size() - (text.ends_with('%') ? 1 : 0);
  const auto read = std::from_chars(text.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end || !std::isfinite(number) || number < 0.0)
    fail("--fail-above: \"{}\", expected a percentage such as 3%", text);
  return number / 100.0;
}

}  // namespace

std::vector<CLI::Option*> add_step_filter(CLI::App& command, StepFilter& filter) {
  const auto set_steps = [&filter](const std::string& text) {
    filter.steps = parse_step_range("--steps", text);
  };
  return {
      add_choice(&command, "--phase", filter.phase, {StepPhase::prefill, StepPhase::decode, StepPhase::mixed},
                 "Only the steps that prefill, decode, or do both"),
      command.add_option_function<std::string>("--steps", set_steps, "Only steps A to B, both included")
          ->option_text("A:B"),
      command.add_option("--request", filter.request, "Only steps that served the request of this id")
          ->option_text("ID")};
}

CLI::Option* add_fail_above(CLI::App& command, std::optional<double>& share, const std::string& description) {
  const auto set = [&share](const std::string& text) { share = share_of_percent(text); };
  return command.add_option_function<std::string>("--fail-above", set, description)->option_text("PERCENT");
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
