#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/serving/server.h"
#include "tests/support/server/test_server.h"

namespace minfer::test {

/// A model of a server with several: a scripted engine whose answers differ from those of other seeds.
struct PoolModel {
  std::string name;
  uint64_t seed = 1;
  int64_t bytes = 1;         ///< as PooledModel has them
  StepGate* gate = nullptr;  ///< of its steps; null: they pass
  /// Called on the pool's thread when the model is to be loaded; may throw.
  std::function<void(const LoadProgress& progress)> before_load = nullptr;
};

/// Counts loads of models, and the engines there are.
struct EngineCounts {
  std::atomic<int> loads{0};  ///< begun, without the one at the start
  std::atomic<int> alive{0}, most_alive{0};
};

inline std::shared_ptr<Engine> make_pool_engine(const PoolModel& model, EngineCounts& counts) {
  auto source = open_scripted_model();
  const EngineOptions engine = scripted_options();
  ScriptedBackend::Options options{.num_blocks = engine.num_blocks,
                                   .block_size = engine.block_size,
                                   .vocab_size = source->config().vocab_size,
                                   .seed = model.seed};
  if (model.gate != nullptr) options.before_step = [gate = model.gate](int64_t) { gate->pass(); };
  counts.most_alive = std::max(counts.most_alive.load(), ++counts.alive);
  return {new Engine(std::move(source), engine, LoadProgress{},
                     std::make_unique<ScriptedBackend>(std::move(options))),
          [&counts](Engine* made) {
            delete made;
            --counts.alive;
          }};
}

/// A server over several scripted models, the first of which is loaded at the start, on its own thread and a free port.
class PoolServer {
 public:
  explicit PoolServer(std::vector<PoolModel> models, ModelSet set = {}, ServerOptions options = {})
      : models_(std::move(models)), counts_(models_.size()), log_(LogFormat::text, LogLevel::off) {
    options.port = 0;
    options.access_log = false;
    ::setenv("MINFER_CEILINGS", "skip", 1);
    const auto source = open_scripted_model();
    const std::shared_ptr<const Tokenizer> tokenizer = source->make_tokenizer();
    for (size_t i = 0; i < models_.size(); ++i) {
      const auto load = [this, i](const LoadProgress& progress) {
        ++counts_[i].loads;
        if (models_[i].before_load) models_[i].before_load(progress);
        return make_pool_engine(models_[i], of_all_);
      };
      set.models.push_back(
          {.engine = i == 0 ? make_pool_engine(models_[i], of_all_) : nullptr,
           .tokenizer = tokenizer,
           .context = make_context(*source, *tokenizer, scripted_options(), {models_[i].name}, options, log_),
           .bytes = models_[i].bytes,
           .load = load});
    }
    server_.emplace(loop_, std::move(set), log_, options);
    thread_ = std::thread([this] {
      ended_well_ = server_->run();
      ended_ = true;
    });
  }
  ~PoolServer() {
    if (thread_.joinable()) stop();
  }
  PoolServer(const PoolServer&) = delete;
  PoolServer& operator=(const PoolServer&) = delete;

  uint16_t port() const { return server_->port(); }
  RawClient connect() const { return RawClient(port()); }
  Server& server() { return *server_; }
  bool ended() const { return ended_; }
  /// Loads of that model that have begun.
  int num_loads(size_t model) const { return counts_[model].loads; }
  /// Engines of all models.
  const EngineCounts& engines() const { return of_all_; }

  RawClient::Response complete(const std::string& body) const {
    return connect().request("POST", "/v1/completions", body);
  }
  /// A model's member `status.value` in /v1/models.
  std::string status(const std::string& model) const {
    const auto answer = nlohmann::json::parse(connect().request("GET", "/v1/models").body);
    for (const auto& each : answer["data"])
      if (each["id"] == model) return each["status"]["value"];
    return "not listed";
  }
  /// The value of a metric of that model.
  double metric(const std::string& name, const std::string& model) const {
    const std::string text = connect().request("GET", "/metrics").body;
    const std::string label = fmt::format("model_name=\"{}\"", model);
    for (size_t at = 0; (at = text.find("\n" + name + "{", at)) != std::string::npos; ++at) {
      const size_t end = text.find('\n', at + 1);
      const std::string line = text.substr(at + 1, end - at - 1);
      if (line.find(label) != std::string::npos) return std::stod(line.substr(line.find("} ") + 2));
    }
    return -1.0;
  }
  /// Waits until that many requests wait for the model to be loaded.
  [[nodiscard]] bool wait_for_waiting(const std::string& model, size_t count) const {
    return wait_until(
        [&] { return metric("minfer:model_requests_waiting", model) == static_cast<double>(count); });
  }
  [[nodiscard]] bool wait_for_status(const std::string& model, const std::string& wanted) const {
    return wait_until([&] { return status(model) == wanted; });
  }

  /// Shuts down and waits. Returns as Server::run().
  bool stop() {
    server_->shut_down();
    return wait();
  }
  bool wait() {
    thread_.join();
    return ended_well_;
  }
  /// Destroys the server, which has ended.
  void destroy() { server_.reset(); }

 private:
  std::vector<PoolModel> models_;
  std::vector<EngineCounts> counts_;
  EngineCounts of_all_;
  ServerLog log_;
  EventLoop loop_;
  std::optional<Server> server_;
  std::atomic<bool> ended_{false};
  bool ended_well_ = false;
  std::thread thread_;
};

/// The body of a completion request to a model.
inline std::string body_for(const std::string& model, const std::vector<TokenId>& prompt, int32_t max_tokens,
                            bool stream = false) {
  return fmt::format(R"({{"model":"{}","prompt":[{}],"max_tokens":{},"ignore_eos":true,"stream":{}}})", model,
                     fmt::join(prompt, ","), max_tokens, stream);
}

inline std::string text_of(const RawClient::Response& response) {
  if (response.status != 200) throw std::runtime_error(fmt::format("{}: {}", response.status, response.body));
  return nlohmann::json::parse(response.body)["choices"][0]["text"];
}

}  // namespace minfer::test
