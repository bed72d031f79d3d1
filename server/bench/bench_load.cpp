#include "server/bench/bench_load.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <unordered_map>

#include "server/terminal/terminal.h"

namespace minfer {
namespace {

class LoadTest {
 public:
  LoadTest(Engine& engine, const std::vector<Conversation>& workload, int32_t max_concurrency)
      : engine_(engine),
        workload_(workload),
        max_in_flight_(max_concurrency > 0 ? static_cast<size_t>(max_concurrency) : workload.size()) {
    begin_ns_ = now_ns();
    followers_.resize(workload.size(), workload.size());
    for (size_t i = 0; i < workload.size(); ++i) {
      num_requests_ += workload[i].turns.size();
      if (workload[i].follows < 0) {
        expect(i, begin_ns_);
      } else {
        followers_.at(static_cast<size_t>(workload[i].follows)) = i;
      }
    }
  }

  LoadResult run() {
    const InterruptWatch interrupt;
    ProgressBar bar(num_requests_);
    while ((!expected_.empty() || !in_flight_.empty()) && !interrupt.interrupted()) {
      send_due();
      cancel_due();
      if (engine_.has_work()) {
        for (const RequestOutput& output : engine_.step())
          record(output);
      } else {
        wait_for_next();
      }
      bar.update(result_.records.size(), output_tokens_);
    }
    result_.duration_s = static_cast<double>(now_ns() - begin_ns_) * 1e-9;
    result_.interrupted = interrupt.interrupted();
    for (const auto& [id, session] : in_flight_)
      engine_.cancel(id);
    return std::move(result_);
  }

 private:
  /// A conversation under way: its text so far, and the request of its present turn.
  struct Session {
    const Conversation* conversation = nullptr;
    size_t place = 0;  ///< of the conversation
    size_t turn = 0;
    std::vector<TokenId> history;
    RequestRecord record;
  };

  void expect(size_t place, int64_t since_ns) {
    expected_.emplace(since_ns + static_cast<int64_t>(workload_[place].arrival_s * 1e9), place);
  }

  void send_due() {
    while (!expected_.empty() && in_flight_.size() < max_in_flight_ && expected_.begin()->first <= now_ns()) {
      Session session;
      session.place = expected_.extract(expected_.begin()).mapped();
      session.conversation = &workload_[session.place];
      send_turn(std::move(session));
    }
  }

  void send_turn(Session session) {
    const BenchTurn& turn = session.conversation->turns[session.turn];
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
    request.sampling.stream_interval = session.conversation->stream_interval;
    if (session.conversation->scores_prompt) request.sampling.prompt_logprobs = 0;
    request.priority = session.conversation->priority;
    session.record = {};
    session.record.start_ns = now_ns();
    engine_.submit(request);
    if (const int64_t wait_ns = session.conversation->cancel_after_ns; wait_ns >= 0)
      cancel_at_ns_.emplace(session.record.start_ns + wait_ns, request.id);
    num_counted_ += session.conversation->cancel_after_tokens > 0 ? 1 : 0;
    in_flight_[request.id] = std::move(session);
  }

  /// Cancels the requests whose time, or number of tokens, has been reached. The engine answers them in its next step.
  void cancel_due() {
    for (; !cancel_at_ns_.empty() && cancel_at_ns_.begin()->first <= now_ns();
         cancel_at_ns_.erase(cancel_at_ns_.begin()))
      engine_.cancel(cancel_at_ns_.begin()->second);
    if (num_counted_ == 0) return;
    std::vector<std::string> due;
    for (const Sequence* sequence : engine_.scheduler().running()) {
      const int32_t most = in_flight_.at(sequence->id).conversation->cancel_after_tokens;
      if (most > 0 && sequence->num_output_tokens() >= most) due.push_back(sequence->id);
    }
    for (const std::string& id : due)
      engine_.cancel(id);
  }

  /// Waits briefly, so that Ctrl-C is noticed.
  void wait_for_next() const {
    constexpr int64_t kMaxNs = 100'000'000;
    if (expected_.empty()) return;
    const int64_t wait_ns = std::min(expected_.begin()->first - now_ns(), kMaxNs);
    std::this_thread::sleep_for(std::chrono::nanoseconds(wait_ns));
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
    end_turn(output.id);
  }

  void end_turn(const std::string& id) {
    Session session = std::move(in_flight_.at(id));
    in_flight_.erase(id);
    num_counted_ -= session.conversation->cancel_after_tokens > 0 ? 1 : 0;
    const bool completed = session.record.completed();
    result_.records.push_back(std::move(session.record));
    if (completed && ++session.turn < session.conversation->turns.size())
      return send_turn(std::move(session));
    if (followers_[session.place] < workload_.size()) expect(followers_[session.place], now_ns());
  }

  Engine& engine_;
  const std::vector<Conversation>& workload_;
  size_t max_in_flight_;
  size_t num_requests_ = 0;
  LoadResult result_;
  int64_t begin_ns_ = 0;
  int64_t output_tokens_ = 0;
  size_t num_sent_ = 0;
  std::multimap<int64_t, size_t> expected_;  ///< places of conversations that have not begun, by their time
  std::vector<size_t> followers_;            ///< by place; the workload's size: none
  std::unordered_map<std::string, Session> in_flight_;  ///< by request id
  std::multimap<int64_t, std::string> cancel_at_ns_;    ///< ids, of requests that may have ended before
  size_t num_counted_ = 0;                              ///< in flight, to be cancelled by their tokens
};

}  // namespace

LoadResult run_load(Engine& engine, const std::vector<Conversation>& workload, int32_t max_concurrency) {
  return LoadTest(engine, workload, max_concurrency).run();
}

}  // namespace minfer
