#include <algorithm>
#include <chrono>
#include <list>
#include <thread>

#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "server/bench/bench_load.h"
#include "server/bench/completion_stream.h"
#include "server/bench/http_client.h"
#include "server/terminal/terminal.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kTickNs = 100'000'000;  ///< between two looks at Ctrl-C and at time-outs

/// "Name: value" lines, ready for a request.
std::vector<std::string> header_lines(const RemoteOptions& options) {
  std::vector<std::string> lines;
  const auto add = [&](std::string_view name, std::string_view value) {
    constexpr std::string_view kEndsLine("\r\n\0", 3);
    if (name.empty() || name.find_first_of(" :") != std::string_view::npos ||
        name.find_first_of(kEndsLine) != std::string_view::npos ||
        value.find_first_of(kEndsLine) != std::string_view::npos) {
      fail("--header: \"{}={}\" is no header, expected NAME=VALUE", name, value);
    }
    lines.push_back(fmt::format("{}: {}", name, value));
  };
  if (!options.api_key.empty()) add("Authorization", "Bearer " + options.api_key);
  for (const std::string& header : options.headers) {
    const size_t equals = std::min(header.find('='), header.size());
    add(header.substr(0, equals), header.substr(std::min(equals + 1, header.size())));
  }
  return lines;
}

/// The conversation so far, in the form of a completion request:
/// tokens or text in `prompt`, or `messages` of a chat.
class PromptHistory {
 public:
  explicit PromptHistory(const RemoteOptions& options) : options_(options) {}

  /// Throws Error for tokens in a chat, whose messages are text.
  void add_prompt(const BenchPrompt& prompt) {
    if (!options_.is_chat()) {
      tokens_.insert(tokens_.end(), prompt.tokens.begin(), prompt.tokens.end());
      if (!text_.empty()) text_ += '\n';
      text_ += prompt.text;
      return;
    }
    if (!prompt.tokens.empty())
      fail("a prompt of token ids cannot be sent to a chat endpoint, expected text");
    messages_.push_back({{"role", "user"}, {"content", prompt.text}});
  }

  void add_answer(const std::string& text) {
    if (options_.is_chat()) {
      messages_.push_back({{"role", "assistant"}, {"content", text}});
    } else if (options_.tokenizer != nullptr) {
      const std::vector<TokenId> tokens =
          options_.tokenizer->encode(text, {.add_special = false, .parse_special = false});
      tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    } else {
      text_ += text;
    }
  }

  int64_t num_tokens() const { return std::ssize(tokens_); }  ///< 0 if it is text

  void add_to(Json& body) const {
    if (options_.is_chat()) {
      body["messages"] = messages_;
    } else {
      body["prompt"] = tokens_.empty() ? Json(text_) : Json(tokens_);
    }
  }

 private:
  const RemoteOptions& options_;
  std::vector<TokenId> tokens_;
  std::string text_;
  Json messages_ = Json::array();
};

/// One run of a workload.
class RemoteRun {
 public:
  RemoteRun(const RemoteOptions& options, HttpClient& client, const std::vector<Conversation>& workload,
            int32_t max_concurrency)
      : options_(options),
        client_(client),
        workload_(workload),
        max_in_flight_(max_concurrency > 0 ? static_cast<size_t>(max_concurrency) : workload.size()) {
    for (const Conversation& conversation : workload)
      num_requests_ += conversation.turns.size();
  }

  LoadResult run() {
    const InterruptWatch interrupt;
    ProgressBar bar(num_requests_);
    begin_ns_ = now_ns();
    while (!is_done() && !interrupt.interrupted()) {
      send_due();
      if (is_done()) break;
      client_.run_until(next_event_ns());
      end_overdue();
      bar.update(result_.records.size(), output_tokens_);
    }
    result_.duration_s = static_cast<double>(now_ns() - begin_ns_) * 1e-9;
    result_.interrupted = interrupt.interrupted();
    abandon();
    return std::move(result_);
  }

 private:
  /// A conversation under way: its text so far, and the request of its present turn.
  struct Session {
    Session(const Conversation& said, const RemoteOptions& options) : conversation(said), history(options) {}
    const Conversation& conversation;
    size_t turn = 0;
    PromptHistory history;
    std::unique_ptr<CompletionStream> stream;
  };
  using SessionRef = std::list<Session>::iterator;

  bool is_done() const { return num_begun_ == workload_.size() && sessions_.empty(); }

  int64_t arrival_ns(size_t index) const {
    return begin_ns_ + static_cast<int64_t>(workload_[index].arrival_s * 1e9);
  }

  int64_t next_event_ns() const {
    const int64_t tick_ns = now_ns() + kTickNs;
    const bool waits_for_arrival = num_begun_ < workload_.size() && sessions_.size() < max_in_flight_;
    return waits_for_arrival ? std::min(arrival_ns(num_begun_), tick_ns) : tick_ns;
  }

  void send_due() {
    while (num_begun_ < workload_.size() && sessions_.size() < max_in_flight_ &&
           arrival_ns(num_begun_) <= now_ns()) {
      sessions_.emplace_back(workload_[num_begun_++], options_);
      send_turn(std::prev(sessions_.end()));
    }
  }

  void send_turn(SessionRef session) {
    const BenchTurn& turn = session->conversation.turns[session->turn];
    session->history.add_prompt(turn.prompt);
    const bool keeps_text = options_.keep_text || session->turn + 1 < session->conversation.turns.size();
    session->stream = std::make_unique<CompletionStream>(options_.is_chat(), keeps_text,
                                                         [this, session] { end_turn(session); });
    HttpMessage message{.target = options_.endpoint, .body = request_body(*session, turn.output_len)};
    RequestRecord& record = session->stream->record();
    record.input_tokens = session->history.num_tokens();
    record.start_ns = now_ns();
    client_.send(std::move(message), *session->stream);
  }

  std::string request_body(const Session& session, int32_t output_len) const {
    Json body = {{"model", options_.model}};
    session.history.add_to(body);
    body[options_.is_chat() ? "max_completion_tokens" : "max_tokens"] = output_len;
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
    if (session.conversation.priority != 0) body["priority"] = session.conversation.priority;
    body.update(options_.body);
    body.update(options_.override_body);
    return body.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  /// Called at the end of a response, from the client.
  void end_turn(SessionRef session) {
    if (is_abandoned_) return;
    RequestRecord record = std::move(session->stream->record());
    output_tokens_ += record.output_tokens;
    const bool goes_on = record.completed() && session->turn + 1 < session->conversation.turns.size();
    if (goes_on) session->history.add_answer(record.text);
    if (!options_.keep_text) record.text.clear();
    result_.records.push_back(std::move(record));
    if (goes_on) {
      ++session->turn;
      send_turn(session);
    } else {
      sessions_.erase(session);
    }
    send_due();
    if (is_done()) client_.stop();
  }

  void end_overdue() {
    const auto limit_ns = static_cast<int64_t>(options_.request_timeout_s * 1e9);
    std::vector<CompletionStream*> overdue;
    for (const Session& session : sessions_) {
      if (now_ns() - session.stream->record().start_ns > limit_ns) overdue.push_back(session.stream.get());
    }
    for (CompletionStream* stream : overdue)
      client_.abort(*stream, "timed out");
  }

  /// Ends what is still under way without counting it.
  void abandon() {
    is_abandoned_ = true;
    for (const Session& session : sessions_)
      client_.abort(*session.stream, "abandoned");
  }

  const RemoteOptions& options_;
  HttpClient& client_;
  const std::vector<Conversation>& workload_;
  size_t max_in_flight_;
  size_t num_requests_ = 0;
  LoadResult result_;
  int64_t begin_ns_ = 0;
  int64_t output_tokens_ = 0;
  size_t num_begun_ = 0;
  std::list<Session> sessions_;  ///< under way, in order of arrival
  bool is_abandoned_ = false;
};

}  // namespace

RemoteLoad::RemoteLoad(RemoteOptions options)
    : options_(std::move(options)),
      client_(std::make_unique<HttpClient>(options_.base_url,
                                           HttpClientOptions{.headers = header_lines(options_)})) {}

RemoteLoad::~RemoteLoad() = default;

const std::string& RemoteLoad::model() {
  if (!options_.model.empty()) return options_.model;
  HttpAnswer answer = client_->ask({"/v1/models"}, 10, "timed out");
  if (answer.error.empty() && answer.status != 200)
    answer.error = fmt::format("HTTP {}: {}", answer.status, error_message(answer.body));
  simdjson::dom::parser parser;
  std::string_view named;
  if (parser.parse(answer.body)["data"].at(0)["id"].get(named) == simdjson::SUCCESS) options_.model = named;
  if (answer.error.empty() && options_.model.empty()) answer.error = "names no model; --model can";
  if (!answer.error.empty()) fail("{}/v1/models: {}", options_.base_url, answer.error);
  return options_.model;
}

void RemoteLoad::wait_until_ready(const std::vector<Conversation>& workload, double timeout_s) {
  const int64_t deadline_ns = now_ns() + static_cast<int64_t>(timeout_s * 1e9);
  const Conversation first{.turns = {workload.front().turns.front()}};
  for (;;) {
    std::string problem;
    try {
      model();
    } catch (const Error& error) {
      problem = error.what();
    }
    if (problem.empty()) {
      const LoadResult result = run({first}, 1);
      if (result.interrupted) end_as_interrupted();
      problem = result.records.front().problem();
    }
    if (problem.empty()) return;
    if (now_ns() >= deadline_ns)
      fail("{} is not ready after {} s: {}", options_.base_url, timeout_s, problem);
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

LoadResult RemoteLoad::run(const std::vector<Conversation>& workload, int32_t max_concurrency) {
  return RemoteRun(options_, *client_, workload, max_concurrency).run();
}

}  // namespace minfer
