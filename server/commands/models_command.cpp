// `minfer models`: the models of hubs that are on this machine.
#include <algorithm>
#include <set>

#include <fmt/chrono.h>
#include <fmt/ranges.h>

#include "kernels/base/error.h"
#include "models/gguf/printable.h"
#include "profiling/report/text/table.h"
#include "server/commands/commands.h"
#include "server/hub/hub.h"
#include "server/hub/hub_cache.h"
#include "server/terminal/terminal.h"

namespace minfer {
namespace {

void list_models() {
  const std::filesystem::path root = hub_settings().cache;
  Table table{.columns = {"model", "quantisations", "size", "last used"}};
  for (const std::string& repo : cached_repos(root)) {
    const HubCache cache(root, repo);
    std::set<std::string> quants;
    for (const HubFile& file : cache.files())
      if (is_model_path(file.path)) quants.insert(quant_of(file.path));
    if (quants.empty()) continue;  // another tool's
    table.add("hf:" + printable(repo), fmt::format("{}", fmt::join(quants, " ")), size_text(cache.bytes()),
              fmt::format("{:%F}", fmt::localtime(cache.last_used())));
  }
  print_output(table.rows.empty() ? fmt::format("no models in {}\n", root.string())
                                  : text_table(table, kTextColumns, LongNames::wrap));
}

void show_model(const HubName& name) {
  const HubCache cache(hub_settings().cache, name.repo);
  std::string text;
  for (const HubFile& file : cache.files())
    if (name.quant.empty() || has_quant(file.path, name.quant))
      text += fmt::format("{:>8}  {}\n", size_text(file.bytes),
                          (cache.snapshot(cache.commit()) / file.path).string());
  if (text.empty()) fail("{}: no file of it is in {}", name.text(), hub_settings().cache.string());
  print_output(text);
}

void remove_model(const HubName& name) {
  const HubCache cache(hub_settings().cache, name.repo);
  const int64_t before = cache.bytes();
  if (before == 0) fail("{}: not in {}", name.text(), hub_settings().cache.string());
  cache.remove(name.quant);
  print_output(fmt::format("{} freed\n", size_text(before - cache.bytes())));
}

}  // namespace

void add_models_command(CLI::App& app) {
  CLI::App* models = app.add_subcommand("models", "List, show and remove the models that came from a hub");
  const auto add = [models](const char* command, const char* description, void (*run)(const HubName&)) {
    CLI::App* inside = models->add_subcommand(command, description);
    const auto name = std::make_shared<std::string>();
    inside->add_option("name", *name, "The model: without a quantisation, all of it")
        ->option_text("hf:ORG/REPO[:QUANT]")
        ->required();
    inside->callback([name, run] { run(HubName::parse(*name)); });
  };
  add("show", "Print the files of a model, with their sizes", show_model);
  add("remove", "Remove a model's files that no other model needs", remove_model);
  models->footer(
      "The cache is the folder of huggingface_hub: HF_HUB_CACHE, else hub in HF_HOME, else "
      "~/.cache/huggingface/hub.\n\n"
      "Examples:\n"
      "  minfer models\n"
      "  minfer models show hf:ggml-org/gemma-3-1b-it-GGUF\n"
      "  minfer models remove hf:ggml-org/gemma-3-1b-it-GGUF:Q8_0");
  models->callback([models] {
    if (models->get_subcommands().empty()) list_models();
  });
}

}  // namespace minfer
