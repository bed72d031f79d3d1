#include "server/commands/serve_models.h"

#include <algorithm>
#include <set>
#include <utility>

#include "engine/options/sizes.h"
#include "engine/ranks/rank_backends.h"
#include "profiling/record/machine.h"
#include "server/hub/hub.h"

namespace minfer {
namespace {

/// The share of a machine's free memory for the KV caches of all loaded models, as RankModel has it for one.
constexpr double kKvShareOfFreeMemory = 0.25;
/// A model's memory on a GPU beside weights and KV cache: workspace, activations, CUDA graphs.
constexpr int64_t kOtherGpuBytes = int64_t{1} << 30;

/// The facts about a model that are known before it is loaded.
struct Head {
  std::string name;  ///< as clients give it
  std::string spec;  ///< of a model of a hub: its file
  std::unique_ptr<ModelSource> source = nullptr;
  EngineOptions options;  ///< chosen for its backend
  int64_t weight_bytes = 0;
};

Head open_head(const std::string& spec, const EngineOptions& options, int64_t& free_bytes) {
  Head head{.name = spec, .spec = local_model(spec), .options = options};
  head.source = open_shapes(head.spec);
  head.name = head.spec == spec ? served_name(*head.source) : spec.substr(HubName::kPrefix.size());
  try {
    check_options(options, head.source->config());
  } catch (const Error& error) {
    fail("{}: {}", head.name, error.what());
  }
  const std::unique_ptr<Backend> backend = RankBackends(options, *head.source, nullptr).make(0);
  choose_for_backend(head.options, head.source->config(), backend->info());
  if (const std::optional<DeviceMemory> memory = backend->device_memory()) {
    head.weight_bytes = gpu_weight_bytes(*head.source, options) + kOtherGpuBytes;
    const auto total = static_cast<double>(memory->total_bytes);
    free_bytes = memory->free_bytes - static_cast<int64_t>((1.0 - options.gpu_memory_utilization) * total);
  } else {
    for (const HostTensor& tensor : head.source->tensors())
      head.weight_bytes += static_cast<int64_t>(tensor.bytes());
    free_bytes = static_cast<int64_t>(available_memory_bytes());
  }
  return head;
}

/// The bytes of each model's KV cache if none are asked for: as many as let the `max_loaded` largest be loaded together.
int64_t usual_kv_bytes(const std::vector<Head>& heads, size_t max_loaded, int64_t room, bool is_gpu) {
  const auto share = static_cast<int64_t>(max_loaded);
  if (!is_gpu) return static_cast<int64_t>(kKvShareOfFreeMemory * static_cast<double>(room)) / share;
  std::vector<int64_t> weights;
  for (const Head& head : heads)
    weights.push_back(head.weight_bytes);
  std::ranges::sort(weights, std::greater());
  int64_t left = room;
  for (size_t i = 0; i < max_loaded; ++i)
    left -= weights[i];
  if (left > 0) return left / share;
  fail(
      "--max-loaded {}: that many models take {} bytes without their KV caches, but {} are free: lower it, "
      "or give the size of each KV cache with --kv-cache-memory",
      max_loaded, room - left, room);
}

/// Chooses all sizes as the engine does. Returns the bytes of KV blocks and states.
int64_t choose_sizes(EngineOptions& options, const ModelConfig& config, int64_t kv_bytes,
                     int64_t memory_bytes) {
  const int64_t block_bytes = kv_block_bytes(config, options, options.kv_cache_dtype.value());
  choose_state_copies(options, config, {.cache_bytes = kv_bytes, .memory_bytes = memory_bytes});
  const int64_t state_bytes = state_slot_bytes(config), copies = options.num_state_copies.value_or(0);
  choose_kv_blocks(options, config, std::max<int64_t>(1, (kv_bytes - copies * state_bytes) / block_bytes));
  return options.num_blocks * block_bytes + (options.num_state_slots + copies) * state_bytes;
}

void check_names(const std::vector<Head>& heads) {
  std::set<std::string_view> names;
  for (const Head& head : heads) {
    if (head.name == "*") fail("--served-model-name '*': expected with one model, not {}", heads.size());
    if (!names.insert(head.name).second)
      fail("--model \"{}\": two models have the name {}: tell them apart with --served-model-name", head.spec,
           head.name);
  }
}

}  // namespace

void ServeModels::add_to(CLI::App& command, EngineArgs& engine) {
  const OptionGroup group{command, EngineArgs::kModelGroup};
  command_ = &command;
  const auto take = [this, &engine](const std::vector<std::string>& models) {
    specs = models;
    engine.model = models.front();
  };
  add_taken<std::vector<std::string>>(
      group, "-m,--model,MODEL", take,
      kModelDescription +
          std::string(". Several models, each with an option of its own: a request's model names one, which "
                      "is loaded then; all other options hold for each of them"))
      ->allow_extra_args(false)
      ->excludes(add_hub_options(group, engine.model));
  options_ = {
      add_option(group, "--max-loaded", max_loaded,
                 "most models that are loaded at once (default: all). One without requests makes room",
                 CLI::PositiveNumber, Shown{"N"}),
      add_option(
          group, "--max-loaded-memory", memory_bytes,
          "most bytes of weights and KV caches of all loaded models (default: what is free at the start)",
          CLI::AsSizeValue(false), Shown{"SIZE"}),
      add_seconds(
          group, "--unload-after", unload_after, 0.0,
          "seconds without requests after which a model is unloaded (0: when another one needs its room)")};
  engine.add_device_options(command);
}

ModelSet ServeModels::open(EngineArgs& engine, const ServerOptions& server, ServerLog& log) const {
  if (!are_several()) {
    for (const CLI::Option* option : options_)
      if (option->count() > 0) fail("{}: expected with several models", option->get_name());
    return {};
  }
  refuse_launcher("serve with several models");
  for (const char* option :
       {"--tensor-parallel-size", "--speculative-model", "--kv-cache-dir", "--kv-events-endpoint",
        "--profile-out", "--profile-range", "--profile-counters", "--profile-counters-every"})
    if (command_->get_option(option)->count() > 0)
      fail("{}: expected with one model, not {}", option, specs.size());

  int64_t free_bytes = 0;
  std::vector<Head> heads;
  for (const std::string& spec : specs)
    heads.push_back(open_head(spec, engine.options, free_bytes));
  if (const std::vector<std::string>& names = server.served_model_names; !names.empty()) {
    if (names.size() != heads.size())
      fail("--served-model-name: {} names, expected one for each of {} models, in their order", names.size(),
           heads.size());
    for (size_t i = 0; i < heads.size(); ++i)
      heads[i].name = names[i];
  }
  check_names(heads);
  const auto most = static_cast<int32_t>(heads.size());
  ModelSet set{.max_loaded = static_cast<size_t>(max_loaded > 0 ? std::min(max_loaded, most) : most),
               .max_waiting = static_cast<size_t>(engine.options.max_num_seqs) +
                              static_cast<size_t>(server.max_queue_size),
               .memory_bytes = memory_bytes > 0 ? memory_bytes : free_bytes,
               .unload_after = unload_after};
  int64_t& kv_bytes = engine.options.kv_cache_bytes;
  if (kv_bytes == 0 && engine.options.num_blocks == 0)
    kv_bytes = usual_kv_bytes(heads, set.max_loaded, set.memory_bytes, uses_cuda(engine.options));
  engine.model = heads.front().spec;
  ServerLog quiet(LogFormat::text, LogLevel::off);  // each load says it again
  for (Head& head : heads) {
    const int64_t bytes =
        head.weight_bytes + choose_sizes(head.options, head.source->config(), kv_bytes, set.memory_bytes);
    if (bytes > set.memory_bytes)
      log.write(LogLevel::warning, "a model needs more memory than there is for all models",
                {{"model", std::string_view(head.name)}, {"bytes", bytes}, {"memory", set.memory_bytes}});
    EngineArgs own = engine;
    own.model = head.spec;
    const std::shared_ptr<const Tokenizer> tokenizer = head.source->make_tokenizer();
    set.models.push_back(
        {.tokenizer = tokenizer,
         .context = make_context(*head.source, *tokenizer, head.options, {head.name}, server, quiet),
         .bytes = bytes,
         .load = [own](const LoadProgress& progress) { return own.make_engine(progress); }});
  }
  return set;
}

}  // namespace minfer
