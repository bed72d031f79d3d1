#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/thread_pool.hpp>

#include "server/http/http_message.h"
#include "server/serving/served_model.h"

namespace minfer {

/// A model that a server may load.
struct PooledModel {
  std::shared_ptr<Engine> engine = nullptr;  ///< loaded at the start; null: when it is asked for
  // With several models:
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;
  ApiContext context = {};  ///< see make_context(); with one name
  int64_t bytes = 0;        ///< memory that it takes when it is loaded
  /// Called on a thread of its own, one call at a time. An exception of `progress` is to end it.
  std::function<std::shared_ptr<Engine>(const LoadProgress& progress)> load = nullptr;
};

/// The models of a server.
struct ModelSet {
  std::vector<PooledModel> models = {};  ///< the first one has an engine
  size_t max_loaded = 1;
  size_t max_waiting = 1;                                      ///< requests for a model that is not loaded
  int64_t memory_bytes = std::numeric_limits<int64_t>::max();  ///< for the models that are loaded
  /// A model without requests for this long is unloaded; 0: never.
  std::chrono::milliseconds unload_after{0};
};

/// Loads and unloads the models of a server as requests ask for them, one change at a time on a thread of its own. A request whose
/// model is not loaded waits for it, in the order in which models were first asked for. If there is no room, the model
/// whose last request ended first makes room, as soon as it has no requests. If all have some, the one chosen takes
/// no further ones: these wait until it is loaded again. So no model waits forever. I/O thread, unless a function says otherwise.
class ModelPool {
 public:
  using Use = std::function<void(ServedModel&)>;

  /// Before the loop runs. `parts` outlives the pool.
  ModelPool(ModelSet set, const ServerParts& parts);
  /// When the loop and its background work have ended. Waits for a load or unload in progress: see stop().
  ~ModelPool();
  ModelPool(const ModelPool&) = delete;
  ModelPool& operator=(const ModelPool&) = delete;

  /// Starts the models that are loaded.
  void start();

  // Any thread.
  bool is_single() const { return models_.size() == 1; }
  /// The model of that name, perhaps with `tag` behind it; an empty name: the first. Throws 404. One model alone: that one.
  size_t find(std::string_view name, std::string_view tag = {}) const;
  /// A model's facts for the API; `listed` from list().
  std::shared_ptr<const ApiContext> context(size_t model, std::vector<ListedModel> listed) const;
  const std::string& first_name() const;

  /// Calls `use` when the model is loaded, which stays so until the exchange goes. The
  /// answer is an error if it cannot be loaded. Throws ApiError if it will not be tried. A client that goes is forgotten.
  void use(size_t model, std::shared_ptr<HttpExchange> exchange, Use use);
  /// The model of that name, or the first one that is loaded if the name is empty. Throws ApiError if it is not loaded.
  ServedModel& loaded(std::string_view name) const;
  /// All loaded models, which stay so while there are copies of the pointers.
  std::vector<std::shared_ptr<ServedModel>> all_loaded() const;
  /// All models, for ApiContext::listed. Empty: there is one model.
  std::vector<ListedModel> list() const;
  /// Answers all that wait, and all later requests, with `error`, and gives up a load.
  void refuse_all(const ApiError& error);
  /// After the loop has ended: false if a step or a load takes longer than `patience`.
  bool stop(std::chrono::milliseconds patience);

 private:
  struct Waiter {
    std::shared_ptr<HttpExchange> exchange;
    Use use;
  };
  struct Model {
    PooledModel source;
    std::unique_ptr<ServedModel> served = nullptr;  ///< null: it is not loaded
    std::vector<Waiter> waiters = {};  ///< for the model to be loaded, or for another one in front of it
    int64_t waits_since = 0;           ///< orders models with waiters
    bool has_failed = false;           ///< its last load did
    bool makes_room = false;           ///< it takes no further requests
  };

  void give(Model& model, const Waiter& waiter);
  void give_all(Model& model);
  void fail(Model& model, const ApiError& error);
  bool has_room(const Model& model) const;
  Model* next_to_load();
  Model* next_to_unload();
  void advance();
  void advance_later();
  void change(std::function<void()> work, std::function<void()> then);
  void load(Model& model);
  void on_loaded(Model& model, int64_t begin_ns);
  void log_change(std::string_view event, const Model& model, const LogField& more);
  void unload(Model& model);
  void unload_idle();

  const ServerParts& parts_;
  const size_t max_loaded_, max_waiting_;
  const int64_t memory_bytes_;
  const std::chrono::milliseconds unload_after_;
  std::vector<Model> models_;
  std::optional<ApiError> refusal_;  ///< the answer to every new request, once set
  bool advances_later_ = false;
  bool is_changing_ = false;             ///< a model is being loaded or unloaded
  Model* loading_ = nullptr;             ///< that model, if it is being loaded
  std::unique_ptr<ServedModel> loaded_;  ///< the result of a load; null: it failed,
  std::string failure_;                  ///< for this reason
  std::atomic<bool> gives_up_{false};    ///< the load is to end
  std::future<void> change_;
  std::optional<boost::asio::thread_pool> changes_;  ///< of one thread; absent: there is one model
};

}  // namespace minfer
