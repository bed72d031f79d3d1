#include <cstdio>
#include <memory>
#include <string>

#include "models/gguf.h"
#include "server/commands.h"
#include "server/inspect_report.h"

namespace minfer {
namespace {

struct InspectOptions {
  std::string file;
  std::string output = "table";
  bool tensors = true;
};

void inspect(const InspectOptions& options) {
  const GgufFile file = GgufFile::open(options.file);
  std::string text;
  if (options.output == "json") {
    const auto report = inspect_json(file, options.tensors);
    text = report.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  } else {
    text = inspect_table(file, options.tensors);
  }
  file.check_intact();
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
    fail("standard output: cannot be written");
}

}  // namespace

void add_inspect_command(CLI::App& app) {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App* command =
      app.add_subcommand("inspect", "Show what a GGUF file holds: metadata, tensors, totals per type");
  command->add_option("file", options->file, "A GGUF file; of a split model the first part")->required();
  command->add_option("-o,--output", options->output, "Format: table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  command->add_flag("--tensors,!--no-tensors", options->tensors,
                    "List every tensor (default), or totals only");
  command->callback([options] { inspect(*options); });
}

}  // namespace minfer
