// `minfer models`: the models of hubs that are on this machine.
#include <algorithm>
#include <set>

#include <fmt/chrono.h>

#include "kernels/base/error.h"
#include "models/gguf/printable.h"
#include "profiling/text/table.h"
#include "server/commands/commands.h"
#include "server/hub/hub.h"
#include "server/hub/hub_cache.h"
#include "server/terminal/terminal.h"

namespace minfer {
namespace {

/// A row for each quantisation; its files are the parts of a split model.
void list_models() {
  const std::filesystem::path root = hub_settings().cache;
  Table table{.columns = {"model", "size", "last used"}};
  for (const std::string& repo : cached_repos(root)) {
    const HubCache cache(root, repo);
    const std::vector<HubFile> files = cache.files();
    std::set<std::string> quants;
    for (const HubFile& file : files)
      if (is_model_path(file.path)) quants.insert(quant_of(file.path));
    for (const std::string& quant : quants) {
      int64_t bytes = 0;
      std::time_t last_used = 0;
      for (const HubFile& file : files) {
        if (quant_of(file.path) != quant) continue;
        bytes += file.bytes;
        last_used = std::max(last_used, cache.last_used(file));
      }
      table.add(HubName{printable(repo), quant}.text(), size_text(bytes),
                fmt::format("{:%F}", fmt::localtime(last_used)));
    }
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
  const int64_t freed = HubCache(hub_settings().cache, name.repo).remove(name.quant);
  if (freed == 0) fail("{}: no file of it is in {}", name.text(), hub_settings().cache.string());
  print_output(fmt::format("{} freed\n", size_text(freed)));
}

}  // namespace

void add_models_command(CLI::App& app) {
  CLI::App* models = app.add_subcommand("models", "List, show and remove the models that came from a hub");
  models->footer(
      "The cache is the folder of huggingface_hub: HF_HUB_CACHE, else hub in HF_HOME, else "
      "~/.cache/huggingface/hub.\n\n"
      "Examples:\n"
      "  minfer models\n"
      "  minfer models show hf:ggml-org/gemma-3-1b-it-GGUF\n"
      "  minfer models remove hf:ggml-org/gemma-3-1b-it-GGUF:Q8_0");
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
  models->callback([models] {
    if (models->get_subcommands().empty()) list_models();
  });
}

}  // namespace minfer
