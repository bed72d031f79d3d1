#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "server/serving/server.h"
#include "tests/support/engine/engine_run.h"
#include "tests/support/engine/scripted_backend.h"
#include "tests/support/engine/step_gate.h"
#include "tests/support/models/tiny_model.h"
#include "tests/support/resident_memory.h"
#include "tests/support/server/raw_client.h"
#include "tests/support/wait.h"

namespace minfer::test {

/// A model of the tiny shape with a context of 4,096 tokens, whose tokens a ScriptedBackend chooses.
inline std::unique_ptr<ModelSource> open_scripted_model() {
  static const std::vector<std::byte> bytes = [] {
    ModelParts parts = tiny_model();
    parts.keys["llama.context_length"] = 4096u;
    return parts.build();
  }();
  return open_model_in_memory(bytes, "scripted");
}

/// A token of the scripted model whose text is one letter, so that every output token is visible at once.
inline TokenId letter_token() {
  const auto tokenizer = open_scripted_model()->make_tokenizer();
  for (TokenId id = 0; id < tokenizer->vocab_size(); ++id) {
    const std::string_view piece = tokenizer->is_control(id) ? "" : tokenizer->piece(id);
    if (piece.size() == 1 && piece[0] >= 'a' && piece[0] <= 'z') return id;
  }
  throw std::logic_error("the scripted model's vocabulary has no letter");
}

inline EngineOptions scripted_options() {
  EngineOptions options;
  options.device = DeviceChoice::cpu;
  options.max_model_len = 1024;
  options.max_num_seqs = 64;
  options.max_num_batched_tokens = 256;
  options.num_blocks = 1024;
  options.threads = 1;
  return options;
}

struct ScriptedServing {
  EngineOptions engine = scripted_options();
  ServerOptions server = {.port = 0, .access_log = false};
  std::function<void(int64_t step)> before_step = nullptr;
  std::function<void(int64_t step)> before_finish = nullptr;
  std::function<TokenId(int64_t position)> script = nullptr;
  DeviceTracer* tracer = nullptr;         ///< as in ScriptedBackend::Options
  const LaunchTable* launches = nullptr;  ///< the same
  MemoryUse memory = {};                  ///< the same
  StepGate* gate = nullptr;  ///< every step passes through it before it is launched; outlives the server
};

inline std::unique_ptr<Engine> make_scripted_engine(const ScriptedServing& serving) {
  auto model = open_scripted_model();
  ScriptedBackend::Options options{.num_blocks = serving.engine.num_blocks,
                                   .block_size = serving.engine.block_size,
                                   .vocab_size = model->config().vocab_size,
                                   .before_step = serving.before_step,
                                   .before_finish = serving.before_finish,
                                   .script = serving.script,
                                   .tracer = serving.tracer,
                                   .launches = serving.launches,
                                   .memory = serving.memory};
  if (serving.gate != nullptr) {
    options.before_step = [gate = serving.gate, then = serving.before_step](int64_t step) {
      gate->pass();
      if (then) then(step);
    };
  }
  return std::make_unique<Engine>(std::move(model), serving.engine, LoadProgress{},
                                  std::make_unique<ScriptedBackend>(std::move(options)));
}

/// A server over a scripted engine, on its own thread and a free port.
class TestServer {
 public:
  explicit TestServer(const ScriptedServing& serving = {})
      : gate_(serving.gate),
        engine_(make_scripted_engine(serving)),
        log_(LogFormat::text, LogLevel::off),
        server_(std::make_unique<Server>(loop_, *engine_, log_, serving.server)),
        thread_([this] {
          ended_well_ = server_->run();
          ended_ = true;
        }) {}
  ~TestServer() {
    if (thread_.joinable()) stop();
  }
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  uint16_t port() const { return server_->port(); }
  Server& server() { return *server_; }
  EventLoop& loop() { return loop_; }
  RawClient connect() const { return RawClient(port()); }
  bool ended() const { return ended_; }

  /// The value of a metric without labels of its own, from /metrics.
  double metric(const std::string& name) const {
    RawClient client = connect();
    return metric(name, client);
  }
  /// The same over a connection that stays open.
  static double metric(const std::string& name, RawClient& client) {
    const std::string text = client.request("GET", "/metrics").body;
    const size_t found = text.find("\n" + name + "{");
    if (found == std::string::npos) throw std::runtime_error("no metric " + name);
    return std::stod(text.substr(text.find("} ", found) + 2));
  }
  // Conditions to wait for. They return false if it takes too long.
  /// `count` connections are open beside the asking one: the server has noticed all connects and disconnects.
  [[nodiscard]] bool wait_for_connections(size_t count) const {
    return wait_until([&] { return metric("minfer:http_connections") == static_cast<double>(count + 1); });
  }
  /// That many completion requests have come since the start: the engine gets them before its next step.
  [[nodiscard]] bool wait_for_requests(size_t count) const {
    return wait_until([&] { return metric("vllm:request_params_n_count") >= static_cast<double>(count); });
  }
  /// No choice and no connection is left.
  [[nodiscard]] bool wait_until_idle() const {
    return wait_until([&] {
      return metric("vllm:num_requests_running") == 0 && metric("vllm:num_requests_waiting") == 0 &&
             metric("vllm:kv_cache_usage_perc") == 0 && metric("minfer:http_connections") == 1;
    });
  }

  /// Shuts down and waits; the engine stays for inspection. Returns false if the engine failed.
  bool stop() {
    server_->shut_down();
    return wait();
  }
  /// Waits for a server that ends by itself.
  bool wait() {
    if (gate_ != nullptr) gate_->open();
    thread_.join();
    server_.reset();
    return ended_well_;
  }
  Engine& engine() { return *engine_; }

 private:
  StepGate* gate_;
  std::unique_ptr<Engine> engine_;
  ServerLog log_;
  EventLoop loop_;
  std::unique_ptr<Server> server_;
  std::atomic<bool> ended_{false};
  bool ended_well_ = false;
  std::thread thread_;
};

/// The body of a completion request for `max_tokens` tokens after `prompt`, whatever the model says.
inline std::string completion_body(const std::vector<TokenId>& prompt, int32_t max_tokens, bool stream,
                                   const std::string& more = {}) {
  return fmt::format(
      R"({{"model":"scripted","prompt":[{}],"max_tokens":{},"ignore_eos":true,"stream":{}{}{}}})",
      fmt::join(prompt, ","), max_tokens, stream, more.empty() ? "" : ",", more);
}
inline std::string completion_request(const std::string& body, const std::string& more_headers = {}) {
  return RawClient::request_text("POST", "/v1/completions", body, more_headers);
}

/// The answer of the server's engine to a prompt alone.
inline std::string text_alone(Engine& engine, const std::vector<TokenId>& prompt, int32_t max_tokens) {
  return answer_of(engine, greedy_request("alone", prompt, max_tokens)).text;
}

inline size_t num_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

/// True if load tests run at their full size (minutes): MINFER_SOAK=1 build/release/server_tests.
inline bool soaking() {
  return std::getenv("MINFER_SOAK") != nullptr;
}

}  // namespace minfer::test
