#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/decoder/weights/fused_tensors.h"
#include "models/decoder/weights/model_source.h"
#include "models/decoder/weights/quantise.h"
#include "server/commands/args/engine_args.h"
#include "server/commands/args/options.h"
#include "server/commands/commands.h"
#include "server/commands/inspect_report.h"
#include "server/hub/hub.h"
#include "server/terminal/terminal.h"

namespace minfer {
namespace {

struct InspectOptions {
  std::string file;
  std::string output = "table";
  bool tensors = true;
  bool plans = false;
  PlanOptions plan = {};
};

void show_plan(const InspectOptions& options) {
  const nlohmann::ordered_json plans = plan_json(*open_shapes(options.file), options.plan);
  print_output(options.output == "json" ? plans.dump(2) + "\n" : plan_tables(plans, options.plan));
}

void inspect(const InspectOptions& options) {
  if (options.plans) return show_plan(options);
  const GgufFile file = options.file.empty()
                            ? GgufFile::from_memory(embedded_demo_model(), "the embedded demo model")
                            : GgufFile::open(options.file);
  std::string why_not = "a vocabulary without tensors";
  std::optional<ModelConfig> config;  // absent: minfer cannot run it
  try {
    if (!file.tensors().empty()) config = read_config(file);
  } catch (const FileError& error) {
    why_not = error.what();
  }
  std::vector<HostTensor> to_load;
  if (config)
    to_load = tensors_to_load(split_fused_tensors(file.tensors(), *config, file.name()),
                              options.plan.quantization, file.name());
  std::string text;
  if (options.output == "json") {
    auto report = inspect_json(file, options.tensors);
    if (config) report["shape"] = shape_json(*config);
    if (config) report["memory"] = memory_plan_json(*config, to_load);
    if (!config) report["not_runnable"] = why_not;
    text = report.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  } else {
    text = inspect_table(file, options.tensors) + "\n";
    text += config ? shape_table(*config) + memory_plan_table(*config, to_load)
                   : fmt::format("minfer cannot run it: {}\n", why_not);
  }
  file.check_intact();
  print_output(text);
}

}  // namespace

void add_inspect_command(CLI::App& app) {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App* command =
      app.add_subcommand("inspect", "Show what a GGUF file holds and the memory that it takes to run");
  command->add_option("file", options->file,
                      "A GGUF file, for a split model its first part; or hf:ORG/REPO[:QUANT] (default: the "
                      "embedded demo model)");
  add_hub_options({*command, "Options"}, options->file)->excludes("file");
  add_with_default({*command}, "-o,--output", options->output, "Format: table or json",
                   one_of({"table", "json"}));
  command->add_flag("--tensors,!--no-tensors", options->tensors,
                    "List every tensor (default), or totals only");
  EngineArgs::add_quantization(*command, options->plan.quantization);
  CLI::Option* plan = command->add_flag(
      "--plan", options->plans,
      "Show instead the kernel that computes each op of a step on an H200, with its tile, modelled time and "
      "scratch memory. Needs no GPU. The file may be synthetic:NAME[:TYPE]");
  add_with_default({*command}, "--tokens", options->plan.tokens, "With --plan: tokens of a step",
                   CLI::Range(1, 1 << 20), plan)
      ->delimiter(',');
  add_with_default({*command}, "--context", options->plan.context,
                   "With --plan: tokens of context of a decoding sequence", CLI::Range(1, 1 << 30), plan);
  command->footer(
      "Examples:\n"
      "  minfer inspect --no-tensors\n"
      "  minfer inspect llama.gguf\n"
      "  minfer inspect llama.gguf --no-tensors -o json\n"
      "  minfer inspect synthetic:llama-3.1-8b:q4_k --plan --tokens 1,64");
  command->callback([options] {
    options->file = local_model(options->file);
    inspect(*options);
  });
}

}  // namespace minfer
