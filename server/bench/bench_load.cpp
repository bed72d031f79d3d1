#include "server/bench/bench_load.h"

#include <algorithm>
#include <chrono>
#include <list>
#include <map>
#include <thread>
#include <unordered_map>

#include "server/bench/completion_stream.h"
#include "server/terminal/terminal.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

/// One run of a workload: sends conversations at their times, each turn behind the answer to the one before, and keeps the answers.
class LoadRun {
 public:
  LoadRun(const std::vector<Conversation>& workload, int32_t max_concurrency)
      : workload_(workload),
        max_in_flight_(max_concurrency > 0 ? static_cast<size_t>(max_concurrency) : workload.size()),
        followers_(workload.size(), workload.size()) {}
  virtual ~LoadRun() = default;

  LoadResult run() {
    const InterruptWatch interrupt;
    const int64_t begin_ns = now_ns();
    size_t num_requests = 0;
    for (size_t place = 0; place < workload_.size(); ++place) {
      num_requests += workload_[place].turns.size();
      const int64_t follows = workload_[place].follows;
      follows < 0 ? expect(place, begin_ns) : void(followers_.at(static_cast<size_t>(follows)) = place);
    }
    ProgressBar bar(num_requests);
    while (!is_done() && !interrupt.interrupted()) {
      send_due();
      constexpr int64_t kTickNs = 100'000'000;  // between two looks at Ctrl-C and at time-outs
      const bool waits = !expected_.empty() && num_in_flight_ < max_in_flight_;
      const int64_t next_ns = waits ? expected_.begin()->first : INT64_MAX;
      work_until(std::min(next_ns, now_ns() + kTickNs));
      bar.update(result_.records.size(), output_tokens_);
    }
    result_.duration_s = static_cast<double>(now_ns() - begin_ns) * 1e-9;
    result_.interrupted = interrupt.interrupted();
    abandon();
    return std::move(result_);
  }

 protected:
  /// Sends the first turn of the conversation at a place of the workload.
  virtual void begin(size_t place) = 0;
  /// Serves requests under way, until this time at the most.
  virtual void work_until(int64_t deadline_ns) = 0;
  /// Ends the requests still under way, which do not count.
  virtual void abandon() = 0;

  bool is_done() const { return expected_.empty() && num_in_flight_ == 0; }

  void send_due() {
    while (!expected_.empty() && num_in_flight_ < max_in_flight_ && expected_.begin()->first <= now_ns()) {
      ++num_in_flight_;
      begin(expected_.extract(expected_.begin()).mapped());
    }
  }

  /// Keeps the record of a turn that has ended. True if the conversation goes on: with `turn`, the next one.
  bool end_turn(size_t place, size_t& turn, RequestRecord record) {
    const bool goes_on = record.completed() && ++turn < workload_[place].turns.size();
    result_.records.push_back(std::move(record));
    if (goes_on) return true;
    --num_in_flight_;
    if (followers_[place] < workload_.size()) expect(followers_[place], now_ns());
    return false;
  }

  const std::vector<Conversation>& workload_;
  LoadResult result_;
  int64_t output_tokens_ = 0;

 private:
  void expect(size_t place, int64_t since_ns) {
    expected_.emplace(since_ns + static_cast<int64_t>(workload_[place].arrival_s * 1e9), place);
  }

  size_t max_in_flight_;
  size_t num_in_flight_ = 0;                 ///< conversations
  std::multimap<int64_t, size_t> expected_;  ///< places of conversations that have not begun, by their time
  std::vector<size_t> followers_;            ///< by place; the workload's size: none
};

class EngineRun final : public LoadRun {
 public:
  EngineRun(Engine& engine, const std::vector<Conversation>& workload, int32_t max_concurrency)
      : LoadRun(workload, max_concurrency), engine_(engine) {}

 private:
  /// A conversation under way: its text so far, and the request of its present turn.
  struct Session {
    size_t place;
    size_t turn = 0;
    std::vector<TokenId> history = {};
    RequestRecord record = {};
  };

  void begin(size_t place) override { send_turn({.place = place}); }

  void send_turn(Session session) {
    const Conversation& conversation = workload_[session.place];
    const BenchTurn& turn = conversation.turns[session.turn];
    const BenchPrompt& prompt = turn.prompt;
    const std::vector<TokenId> tokens = prompt.draw             ? prompt.draw()
                                        : prompt.tokens.empty() ? engine_.tokenizer().encode(prompt.text)
                                                                : prompt.tokens;
    session.history.insert(session.history.end(), tokens.begin(), tokens.end());
    Request request;
    request.id = fmt::format("bench-{}", num_sent_++);
    request.prompt = session.history;
    request.sampling.temperature = 0.0f;
    request.sampling.ignore_eos = true;
    request.sampling.max_tokens = turn.output_len;
    request.sampling.stream_interval = conversation.stream_interval;
    if (conversation.scores_prompt) request.sampling.prompt_logprobs = 0;
    request.priority = conversation.priority;
    session.record = {};
    session.record.start_ns = now_ns();
    engine_.submit(request);
    if (const int64_t wait_ns = conversation.cancel_after_ns; wait_ns >= 0)
      cancel_at_ns_.emplace(session.record.start_ns + wait_ns, request.id);
    num_counted_ += conversation.cancel_after_tokens > 0 ? 1 : 0;
    in_flight_.emplace(request.id, std::move(session));
  }

  void work_until(int64_t deadline_ns) override {
    cancel_due();
    if (!engine_.has_work())
      return std::this_thread::sleep_for(std::chrono::nanoseconds(deadline_ns - now_ns()));
    for (const RequestOutput& output : engine_.step())
      record(output);
  }

  void abandon() override {
    for (const auto& [id, session] : in_flight_)
      engine_.cancel(id);
  }

  /// Cancels the requests whose time, or number of tokens, has been reached. The engine answers them in its next step.
  void cancel_due() {
    for (; !cancel_at_ns_.empty() && cancel_at_ns_.begin()->first <= now_ns();
         cancel_at_ns_.erase(cancel_at_ns_.begin()))
      engine_.cancel(cancel_at_ns_.begin()->second);
    if (num_counted_ == 0) return;
    std::vector<std::string> due;
    for (const Sequence* sequence : engine_.scheduler().running()) {
      const int32_t most = workload_[in_flight_.at(sequence->id).place].cancel_after_tokens;
      if (most > 0 && sequence->num_output_tokens() >= most) due.push_back(sequence->id);
    }
    for (const std::string& id : due)
      engine_.cancel(id);
  }

  void record(const RequestOutput& output) {
    Session& session = in_flight_.at(output.id);
    if (!output.tokens.empty()) session.record.chunk_ns.push_back(now_ns());
    session.history.insert(session.history.end(), output.tokens.begin(), output.tokens.end());
    output_tokens_ += std::ssize(output.tokens);
    if (!output.finish) return;
    result_.drafted += output.drafted;
    session.record.input_tokens = output.prompt_tokens;
    session.record.output_tokens = output.output_tokens;
    if (is_failure(*output.finish)) {
      session.record.error = name(*output.finish);
      session.record.error_detail = output.finish_detail;
    }
    Session ended = std::move(session);
    in_flight_.erase(output.id);
    num_counted_ -= workload_[ended.place].cancel_after_tokens > 0 ? 1 : 0;
    if (end_turn(ended.place, ended.turn, std::move(ended.record))) send_turn(std::move(ended));
  }

  Engine& engine_;
  size_t num_sent_ = 0;
  std::unordered_map<std::string, Session> in_flight_;  ///< by request id
  std::multimap<int64_t, std::string> cancel_at_ns_;    ///< ids, of requests that may have ended before
  size_t num_counted_ = 0;                              ///< in flight, to be cancelled by their tokens
};

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

/// The conversation so far, as a completion request has it: tokens or text in `prompt`, or `messages` of a chat.
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

class ServerRun final : public LoadRun {
 public:
  ServerRun(const RemoteOptions& options, HttpClient& client, const std::vector<Conversation>& workload,
            int32_t max_concurrency)
      : LoadRun(workload, max_concurrency), options_(options), client_(client) {}

 private:
  /// A conversation under way: its text so far, and the request of its present turn.
  struct Session {
    size_t place;
    PromptHistory history;
    size_t turn = 0;
    std::unique_ptr<CompletionStream> stream = nullptr;
  };
  using SessionRef = std::list<Session>::iterator;

  void begin(size_t place) override {
    send_turn(sessions_.insert(sessions_.end(), Session{place, PromptHistory(options_)}));
  }

  void send_turn(SessionRef session) {
    const Conversation& conversation = workload_[session->place];
    const BenchTurn& turn = conversation.turns[session->turn];
    session->history.add_prompt(turn.prompt);
    const bool keeps_text = options_.keep_text || session->turn + 1 < conversation.turns.size();
    session->stream =
        std::make_unique<CompletionStream>(options_.is_chat(), keeps_text, [this, session] { end(session); });
    HttpMessage message{.target = options_.endpoint,
                        .body = request_body(session->history, turn.output_len, conversation.priority)};
    RequestRecord& record = session->stream->record();
    record.input_tokens = session->history.num_tokens();
    record.start_ns = now_ns();
    client_.send(std::move(message), *session->stream);
  }

  std::string request_body(const PromptHistory& history, int32_t output_len, int32_t priority) const {
    Json body = {{"model", options_.model}};
    history.add_to(body);
    body[options_.is_chat() ? "max_completion_tokens" : "max_tokens"] = output_len;
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
    if (priority != 0) body["priority"] = priority;
    body.update(options_.body);
    body.update(options_.override_body);
    return body.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  /// Called at the end of a response, from the client.
  void end(SessionRef session) {
    if (is_abandoned_) return;
    RequestRecord record = std::move(session->stream->record());
    output_tokens_ += record.output_tokens;
    const std::string text = record.text;
    if (!options_.keep_text) record.text.clear();
    if (end_turn(session->place, session->turn, std::move(record))) {
      session->history.add_answer(text);
      send_turn(session);
    } else {
      sessions_.erase(session);
    }
    send_due();
    if (is_done()) client_.stop();
  }

  void work_until(int64_t deadline_ns) override {
    client_.run_until(deadline_ns);
    const auto limit_ns = static_cast<int64_t>(options_.request_timeout_s * 1e9);
    std::vector<CompletionStream*> overdue;
    for (const Session& session : sessions_)
      if (now_ns() - session.stream->record().start_ns > limit_ns) overdue.push_back(session.stream.get());
    for (CompletionStream* stream : overdue)
      client_.abort(*stream, "timed out");
  }

  void abandon() override {
    is_abandoned_ = true;
    for (const Session& session : sessions_)
      client_.abort(*session.stream, "abandoned");
  }

  const RemoteOptions& options_;
  HttpClient& client_;
  std::list<Session> sessions_;  ///< under way, in order of arrival
  bool is_abandoned_ = false;
};

}  // namespace

LoadResult run_load(Engine& engine, const std::vector<Conversation>& workload, int32_t max_concurrency) {
  return EngineRun(engine, workload, max_concurrency).run();
}

RemoteLoad::RemoteLoad(RemoteOptions options)
    : options_(std::move(options)), client_(options_.base_url, {.headers = header_lines(options_)}) {}

const std::string& RemoteLoad::model() {
  if (!options_.model.empty()) return options_.model;
  HttpAnswer answer = client_.ask({"/v1/models"}, 10, "timed out");
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
  return ServerRun(options_, client_, workload, max_concurrency).run();
}

}  // namespace minfer
