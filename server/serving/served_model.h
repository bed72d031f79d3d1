#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "models/grammar/grammar_cache.h"
#include "server/api/request/api_context.h"
#include "server/dialects/responses/response_store.h"
#include "server/serving/completion/completion_service.h"
#include "server/serving/engine/engine_service.h"
#include "server/serving/engine/metrics.h"
#include "server/serving/engine/server_log.h"
#include "server/serving/model_tasks.h"
#include "server/serving/profile/profile_routes.h"
#include "server/serving/server_options.h"

namespace minfer {

/// The parts of a server that its models share. All outlive the models.
struct ServerParts {
  EventLoop& loop;
  ServerLog& log;
  const ServerOptions& options;
  IgnoredFields& ignored_fields;
  ResponseStore& responses;
  std::shared_ptr<prometheus::Registry> registry;
  std::function<void(const std::string& reason)> on_failure;  ///< of an engine; I/O thread
};

/// The names that clients give to the model of a server that has one.
std::vector<std::string> served_names(const ServerOptions& options, const ModelSource& model);
/// The name that a model has by itself: of a file, without folder and suffix.
std::string served_name(const ModelSource& model);

/// All that the API says of a model without its engine. `tokenizer` outlives it; `options`: with max_model_len chosen. Throws as
/// make_chat_renderer() and set_answer_format().
ApiContext make_context(const ModelSource& model, const Tokenizer& tokenizer, const EngineOptions& options,
                        std::vector<std::string> names, const ServerOptions& server, ServerLog& log);

/// A loaded model with all that serves it: its engine's thread, its queue, metrics and profile.
class ServedModel {
 public:
  /// Any thread; takes as long as measuring the machine's ceilings, if they are not known.
  ServedModel(std::shared_ptr<Engine> engine, std::vector<std::string> names, const ServerParts& parts);
  /// Any thread: after close(), or when the loop and its background work have ended.
  ~ServedModel();
  ServedModel(const ServedModel&) = delete;
  ServedModel& operator=(const ServedModel&) = delete;

  // I/O thread, or before it runs.
  /// Starts the engine's thread. Before anything below.
  void start();
  /// Ends the streams of its profile and all later tasks. While uses().none().
  void close();
  /// A pointer that keeps the model from being unloaded. See ModelUses::hold().
  std::shared_ptr<ServedModel> hold(bool is_request) { return {uses_.hold(is_request), this}; }
  const ModelUses& uses() const { return uses_; }
  CompletionService& completions() { return *completions_; }
  ProfileRoutes& profile() { return *profile_; }

  // Any thread.
  const ApiContext& context() const { return context_; }
  EngineService& engine_service() { return *engine_service_; }
  /// Sets the metrics that are not counted as they change.
  void update_metrics();

 private:
  const ServerParts& parts_;
  const std::shared_ptr<Engine> engine_;
  const ModelUses uses_;
  ModelTasks tasks_;
  Metrics metrics_;
  RecentRecords recent_;
  const std::unique_ptr<GrammarCache> grammars_;  ///< null: the device draws tokens without masks
  ApiContext context_;
  ProfileHeader profile_header_;
  std::unique_ptr<EngineService> engine_service_;
  std::unique_ptr<CompletionService> completions_;
  std::unique_ptr<ProfileRoutes> profile_;
};

}  // namespace minfer
