#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "server/bench/bench_workload.h"
#include "server/bench/http_client.h"
#include "server/bench/load_metrics.h"

namespace minfer {

/// Sends the workload to the engine in this process at its times and runs it to the end, or to Ctrl-C. Draws a progress bar on
/// a terminal. All tokens are greedy and end tokens are ignored, so that every request generates its full number of tokens.
LoadResult run_load(Engine& engine, const std::vector<Conversation>& workload, int32_t max_concurrency);

/// The server under test and the fields of every request to it.
struct RemoteOptions {
  std::string base_url;
  std::string endpoint = "/v1/completions";  ///< one that ends in /chat/completions gets messages
  std::string model;                         ///< the server's name of it; empty: the first it lists
  std::string api_key;
  std::vector<std::string> headers;                                ///< NAME=VALUE
  nlohmann::ordered_json body = nlohmann::ordered_json::object();  ///< further members of the body
  /// --extra-body: takes the place of members of the same name.
  nlohmann::ordered_json override_body = nlohmann::ordered_json::object();
  /// Turns the answers in conversations of tokens into tokens; null if prompts are text. Outlives the load.
  const Tokenizer* tokenizer = nullptr;
  bool keep_text = false;              ///< keep generated text in the records
  double request_timeout_s = 21600.0;  ///< vLLM's

  bool is_chat() const { return endpoint.ends_with("/chat/completions"); }
};

/// A load generator for servers that speak OpenAI's API. Responses are streamed; the server's `usage` counts the tokens.
class RemoteLoad {
 public:
  /// Throws Error for a URL or header that cannot be used.
  explicit RemoteLoad(RemoteOptions options);

  /// The model that requests name: the options' model, else the first of /v1/models. Throws Error if there is none.
  const std::string& model();

  /// Sends the first turn of the workload until it is answered, once a second. After `timeout_s`, throws Error with the last failure.
  void wait_until_ready(const std::vector<Conversation>& workload, double timeout_s);

  /// Sends the workload at its times and reads all answers, or up to Ctrl-C, as run_load(). A conversation that fails ends with that turn.
  LoadResult run(const std::vector<Conversation>& workload, int32_t max_concurrency);

 private:
  RemoteOptions options_;
  HttpClient client_;
};

}  // namespace minfer
