#include "server/serving/served_model.h"

#include <algorithm>
#include <ctime>
#include <map>

#include <fmt/format.h>

#include "kernels/comm/process_group.h"
#include "server/serving/completion/chat_renderer.h"
#include "server/serving/profile/profile_session.h"

namespace minfer {
namespace {

/// The served name that stands for all names.
constexpr std::string_view kAllNames = "*";

ModelFacts facts_of(const ModelSource& model) {
  ModelFacts facts;
  facts.architecture = model.config().architecture.name;
  std::map<DType, int64_t> parameters;
  for (const HostTensor& tensor : model.tensors()) {
    const int64_t count = tensor.count * tensor.rows * tensor.cols;
    parameters[tensor.dtype] += count;
    facts.num_parameters += count;
    facts.bytes += static_cast<int64_t>(tensor.bytes());
  }
  const auto most = std::ranges::max_element(parameters, {}, [](const auto& entry) { return entry.second; });
  if (most != parameters.end()) facts.dtype = name(most->first);
  return facts;
}

/// Null: the device draws tokens without masks.
std::unique_ptr<GrammarCache> make_grammar_cache(Engine& engine) {
  if (!engine.backend_info().takes_masks) return nullptr;
  return std::make_unique<GrammarCache>(
      [&engine] { return std::make_shared<const TokenTrie>(engine.tokenizer(), engine.config().vocab_size); },
      GrammarCache::Options{});
}

}  // namespace

std::string served_name(const ModelSource& model) {
  std::string name = model.name();
  if (name == "the embedded demo model") return "minfer-demo";
  if (name.starts_with(kSyntheticPrefix)) return name;
  name.erase(0, name.rfind('/') + 1);
  if (name.ends_with(".gguf")) name.resize(name.size() - 5);
  return name;
}

std::vector<std::string> served_names(const ServerOptions& options, const ModelSource& model) {
  std::vector<std::string> names = options.served_model_names;
  std::erase(names, kAllNames);
  return names.empty() ? std::vector{served_name(model)} : names;
}

ApiContext make_context(const ModelSource& model, const Tokenizer& tokenizer, const EngineOptions& options,
                        std::vector<std::string> names, const ServerOptions& server, ServerLog& log) {
  ApiContext context;
  context.tokenizer = &tokenizer;
  context.render_chat = make_chat_renderer(server.chat_template, model, tokenizer, log);
  set_answer_format(context, server.answer_format, chat_template_text(server.chat_template, model), log);
  context.vocab_size = model.config().vocab_size;
  context.max_model_len = options.max_model_len;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id)
    context.longest_token_bytes = std::max(context.longest_token_bytes, tokenizer.piece(id, true).size());
  context.served_model_names = std::move(names);
  context.any_model_name =
      std::ranges::find(server.served_model_names, kAllNames) != server.served_model_names.end();
  context.refuses_unknown_fields = server.refuses_unknown_fields;
  context.model = facts_of(model);
  context.created = static_cast<int64_t>(std::time(nullptr));
  context.system_fingerprint = fmt::format("minfer-{}", MINFER_VERSION);
  context.stream_interval = options.stream_interval;
  context.limits.max_answer_bytes = server.max_answer_bytes;
  context.limits.max_history_bytes = server.limits.body_bytes;
  context.schedules_by_priority = options.policy == SchedulingPolicy::priority;
  return context;
}

ServedModel::ServedModel(std::shared_ptr<Engine> engine, std::vector<std::string> names,
                         const ServerParts& parts)
    : parts_(parts),
      engine_(std::move(engine)),
      tasks_(parts.loop, uses_),
      metrics_(names.front(), engine_->options(), parts.registry),
      grammars_(make_grammar_cache(*engine_)),
      context_(make_context(engine_->model(), engine_->tokenizer(), engine_->options(), std::move(names),
                            parts.options, parts.log)),
      // Where the machine's ceilings are not known yet, they are measured now, before the model has work.
      profile_header_(make_profile_header(*engine_, ProfileDetail::op)) {
  context_.responses = &parts.responses;
  context_.grammars = grammars_.get();
  engine_->host_sampler();
  engine_->recorder().add_sink(metrics_);
  engine_->recorder().add_sink(recent_);
}

void ServedModel::start() {
  const auto on_failure = [this](const std::string& reason) {
    tasks_.post([this, reason] { parts_.on_failure(reason); });
  };
  engine_service_ = std::make_unique<EngineService>(
      *engine_,
      EngineService::Callbacks{.on_outputs = [this] { tasks_.post([this] { completions_->on_outputs(); }); },
                               .on_failure = on_failure});
  completions_ = std::make_unique<CompletionService>(
      tasks_, *engine_service_, context_, metrics_, parts_.ignored_fields, parts_.log,
      CompletionService::Options{.max_live_choices = static_cast<size_t>(engine_->options().max_num_seqs) +
                                                     static_cast<size_t>(parts_.options.max_queue_size),
                                 .comment_interval = parts_.options.comment_interval});
  profile_ = std::make_unique<ProfileRoutes>(
      ProfileSources{tasks_, *engine_, *engine_service_, metrics_, parts_.log, parts_.options.counters,
                     recent_, context_.served_model_names.front()},
      std::move(profile_header_), parts_.options.profile_dir);
  if (ProcessGroup* processes = engine_->options().processes.get()) processes->when_failed(on_failure);
}

void ServedModel::close() {
  profile_->end_streams();
  tasks_.close();
}

ServedModel::~ServedModel() {
  if (ProcessGroup* processes = engine_->options().processes.get()) processes->when_failed(nullptr);
  engine_service_.reset();
  profile_.reset();
  engine_->recorder().remove_sink(metrics_);
  engine_->recorder().remove_sink(recent_);
}

void ServedModel::update_metrics() {
  const EngineStatus status =
      engine_service_->status();  // before the counts: those of an idle engine are its last
  std::optional<GrammarCache::Counts> grammars;
  if (grammars_) grammars = grammars_->counts();
  std::optional<KvEventCounts> kv_events;
  if (parts_.options.kv_events != nullptr) kv_events = parts_.options.kv_events->counts();
  metrics_.update(status, kv_events, grammars);
}

}  // namespace minfer
