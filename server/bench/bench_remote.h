#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "server/bench/bench_workload.h"
#include "server/bench/load_metrics.h"
#include "server/http/http_url.h"

namespace minfer {

/// What has been said in a conversation, as a completion request has it: tokens or text in `prompt`, or
/// `messages` of a chat.
class PromptHistory {
 public:
  /// `tokenizer` makes answers into tokens; null if the prompts are text.
  PromptHistory(bool is_chat, const Tokenizer* tokenizer);

  /// Throws Error for tokens in a chat, whose messages are text.
  void add_prompt(const BenchPrompt& prompt);
  void add_answer(const std::string& text);
  int64_t num_tokens() const { return std::ssize(tokens_); }  ///< 0 if it is text
  void add_to(nlohmann::ordered_json& body) const;

 private:
  bool is_chat_;
  const Tokenizer* tokenizer_;
  std::vector<TokenId> tokens_;
  std::string text_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
};

class HttpClient;

/// The server under test and what every request to it says.
struct RemoteOptions {
  std::string base_url;
  std::string endpoint = "/v1/completions";  ///< one that ends in /chat/completions gets messages
  std::string model;                         ///< as the server calls it; empty: the first it names
  std::string api_key;
  std::vector<std::string> headers;                                ///< NAME=VALUE
  nlohmann::ordered_json body = nlohmann::ordered_json::object();  ///< further members of the body
  nlohmann::ordered_json override_body =
      nlohmann::ordered_json::object();  ///< --extra-body: takes the place of members of the same name
  /// Makes the answers in conversations of tokens into tokens; null if prompts are text. Outlives the load.
  const Tokenizer* tokenizer = nullptr;
  bool keep_text = false;              ///< keep what is generated in the records
  double request_timeout_s = 21600.0;  ///< vLLM's

  bool is_chat() const { return endpoint.ends_with("/chat/completions"); }
};

/// A load generator for servers that speak OpenAI's API. Responses are streamed; tokens are counted by the server's `usage`.
class RemoteLoad {
 public:
  /// Throws Error for a URL, header or host that cannot be used.
  explicit RemoteLoad(RemoteOptions options);
  ~RemoteLoad();

  /// The model that requests name: the one of the options, otherwise the first that the server lists at
  /// /v1/models. Throws Error if there is none.
  const std::string& model();

  /// Sends the first turn of the workload, again a second after each failure, until it is answered. Throws
  /// Error with the last failure when `timeout_s` are over.
  void wait_until_ready(const std::vector<Conversation>& workload, double timeout_s);

  /// Sends the workload at its times and reads all answers, or up to Ctrl-C. Draws a progress bar on a
  /// terminal. A conversation that fails ends with that turn.
  LoadResult run(const std::vector<Conversation>& workload, int32_t max_concurrency);

 private:
  /// What keeps the server from answering; empty: nothing.
  std::string try_first(const std::vector<Conversation>& workload);

  RemoteOptions options_;
  HttpUrl url_;
  std::string headers_;
  std::unique_ptr<HttpClient> client_;
};

}  // namespace minfer
