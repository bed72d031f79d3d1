#include "server/bench/replay.h"

#include <cmath>
#include <iterator>
#include <memory>
#include <random>
#include <set>
#include <utility>

#include "kernels/base/error.h"
#include "profiling/json/json_reader.h"
#include "server/bench/bench_output.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

class LoadReader final : public ProfileVisitor {
 public:
  void header(ProfileHeader header) override { load.header = std::move(header); }
  void step(StepSummary& step) override {
    load.busy.add(step.start_ns, step.start_ns + static_cast<int64_t>(step.wall_us * 1e3), step.batch);
  }
  void request(EndedRequest request) override {
    if (request.finish == name(FinishReason::refused) || request.prompt_tokens == 0) {
      ++load.num_refused;
    } else if (load.requests.size() < most) {
      load.requests.push_back(std::move(request));
    } else {
      fail<FileError>("{}: holds more than {} requests, the limit: record a part with --profile-range",
                      load.path, most);
    }
  }

  RecordedLoad load;
  size_t most = 0;
};

/// The request whose end each request waited for; -1: it came at its time. A client that sends its next request when one is answered is
/// always in flight, but for a moment between. In a load of such clients, a request follows the latest end before it that no other follows.
std::vector<int64_t> followed_by(const std::vector<EndedRequest>& requests) {
  constexpr double kMomentOfRequest = 0.2, kAsMany = 0.9, kMostly = 0.9;
  std::vector<double> lengths_ns;
  for (const EndedRequest& request : requests)
    lengths_ns.push_back(static_cast<double>(request.end_ns - request.arrival_ns));
  const double moment_ns = kMomentOfRequest * median_of(lengths_ns);
  const std::vector<int64_t> nobody(requests.size(), -1);
  std::vector<int64_t> followed = nobody;
  std::set<std::pair<int64_t, int64_t>> in_flight, unfollowed;  // ends and places
  std::vector<size_t> clients;                                  // at each arrival
  size_t behind_an_end = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const int64_t now = requests[i].arrival_ns;
    while (!in_flight.empty() && in_flight.begin()->first <= now)
      unfollowed.insert(in_flight.extract(in_flight.begin()));
    while (!unfollowed.empty() && static_cast<double>(now - unfollowed.begin()->first) > moment_ns)
      unfollowed.erase(unfollowed.begin());
    if (!unfollowed.empty()) {
      followed[i] = unfollowed.extract(std::prev(unfollowed.end())).value().second;
      ++behind_an_end;
    }
    in_flight.emplace(requests[i].end_ns, static_cast<int64_t>(i));
    clients.push_back(in_flight.size() + unfollowed.size());
  }
  const size_t most = std::ranges::max(clients), later = requests.size() - most;
  const auto as_many = std::ranges::count_if(std::span(clients).subspan(most), [&](size_t count) {
    return static_cast<double>(count) >= kAsMany * static_cast<double>(most);
  });
  const double mostly = kMostly * static_cast<double>(later);
  const bool is_theirs =
      later >= most && static_cast<double>(as_many) >= mostly && static_cast<double>(behind_an_end) >= mostly;
  return is_theirs ? followed : nobody;
}

/// Sets all but the prompt and the arrival.
Conversation request_again(const EndedRequest& request) {
  Conversation again{.turns = {{.prompt = {}, .output_len = request.output_tokens}}};
  again.priority = request.priority;
  again.stream_interval = request.stream_interval;
  again.scores_prompt = request.num_prefixes == 0 &&
                        request.prompt_tokens >= static_cast<int32_t>(EndedRequest::kShortestPrefix);
  int32_t& output_len = again.turns.front().output_len;
  if (request.finish == name(FinishReason::cancelled)) {
    again.cancel_after_tokens = output_len;
    if (output_len == 0) again.cancel_after_ns = std::max<int64_t>(0, request.end_ns - request.arrival_ns);
    ++output_len;  // else it would end by itself
  } else if (request.finish != name(FinishReason::length)) {
    output_len = std::max(1, output_len);  // it may have failed at its first token
  }
  return again;
}

nlohmann::json settings_of(const ProfileHeader& header) {
  nlohmann::json settings{{"version", header.version},
                          {"model", header.model},
                          {"backend", header.backend},
                          {"device", header.device},
                          {"threads", std::to_string(header.threads)},
                          {"activation_dtype", name(header.activation_dtype)}};
  for (const auto& [option, value] : header.options)
    settings[option] = value;
  return settings;
}

Json differences(const nlohmann::json& recorded, const nlohmann::json& now) {
  nlohmann::json all = recorded;
  all.update(now);
  Json list = Json::array();
  for (const auto& [option, value] : all.items()) {
    const std::string then = recorded.value(option, "absent"), current = now.value(option, "absent");
    if (then != current) list.push_back({{"option", option}, {"recorded", then}, {"replayed", current}});
  }
  return list;
}

Json notes_of(const RecordedLoad& load, const Json& recorded) {
  Json notes = Json::array();
  const auto add = [&](const Json& count, const char* what) {
    if (count > 0) notes.push_back(fmt::format("requests {}: {}", what, count.dump()));
  };
  add(recorded["with_grammar"], "with a grammar, replayed without one");
  add(recorded["with_drafts"],
      "with draft tokens, replayed with the same mean share of right ones, not one by one");
  add(load.num_refused, "that were refused, left out");
  if (!load.note.empty()) notes.push_back(load.note);
  return notes;
}

}  // namespace

std::optional<double> RecordedLoad::acceptance() const {
  SpeculationCounts all;
  for (const EndedRequest& request : requests)
    all += {request.drafts, request.draft_tokens, request.accepted_tokens};
  if (all.drafts == 0) return std::nullopt;
  const double drafts = static_cast<double>(all.drafts);
  const double length = static_cast<double>(all.draft_tokens) / drafts;
  double low = 0.0, high = 1.0;
  while (high - low > 1e-4) {
    const double chance =
        0.5 * (low + high);  // a draft of `length` tokens is right up to the first that is not
    const double right = chance * (1.0 - std::pow(chance, length)) / (1.0 - chance);
    (right * drafts < static_cast<double>(all.accepted_tokens) ? low : high) = chance;
  }
  return 0.5 * (low + high);
}

void RecordedLoad::keep_first(size_t count) {
  if (count >= requests.size()) return;
  requests.resize(count);
  busy = {};
}

RecordedLoad read_recorded_load(const std::string& path, size_t most) {
  LoadReader reader;
  reader.load.path = path;
  reader.most = most;
  reader.load.note = read_profile(path, reader);
  RecordedLoad& load = reader.load;
  if (load.requests.empty()) {
    fail<FileError>(
        "{}: holds no request that ran: record a load with --profile-out FILE.jsonl of minfer serve, bench "
        "or run, and let its requests end",
        path);
  }
  std::ranges::stable_sort(load.requests, {}, &EndedRequest::arrival_ns);
  return std::move(load);
}

std::vector<Conversation> replay_workload(const RecordedLoad& load, const WorkloadOptions& options,
                                          const Engine& engine) {
  const int32_t most = engine.options().max_model_len;  // the KV cache holds that many
  const auto prompts = std::make_shared<const ReplayPrompts>(load.requests, engine.tokenizer(), options.seed);
  const std::vector<int64_t> followed = followed_by(load.requests);
  std::vector<Conversation> workload;
  for (const EndedRequest& request : load.requests) {
    if (request.prompt_tokens + request.output_tokens > most) {
      fail<FileError>(
          "{}: request \"{}\" has {} tokens of prompt and {} of output, but a sequence has {} at most here: "
          "raise --max-model-len (and --kv-cache-memory or --num-blocks), or use another model",
          load.path, request.id, request.prompt_tokens, request.output_tokens, most);
    }
    const int64_t follows = std::isfinite(options.replay_speed) ? followed[workload.size()] : -1;
    const int64_t since_ns =
        follows < 0 ? load.requests.front().arrival_ns : load.requests[static_cast<size_t>(follows)].end_ns;
    Conversation& again = workload.emplace_back(request_again(request));
    again.follows = follows;
    const auto after_ns = static_cast<double>(request.arrival_ns - since_ns);
    again.arrival_s = std::min(after_ns * 1e-9 / options.replay_speed, 1e9);  // a clock has room for that
    again.turns.front().prompt.draw = [prompts, index = workload.size() - 1] { return prompts->draw(index); };
  }
  return workload;
}

ReplayPrompts::ReplayPrompts(std::span<const EndedRequest> requests, const Tokenizer& tokenizer,
                             uint64_t seed)
    : tokenizer_(tokenizer), seed_(seed) {
  for (const EndedRequest& request : requests)
    add(request);
  longest_ = {};
}

void ReplayPrompts::add(const EndedRequest& request) {
  const size_t index = prompts_.size();
  Prompt prompt{.length = request.prompt_tokens};
  prompts_.push_back(prompt);
  int32_t most = prompt.length - 1;  // of the tokens that it shares
  auto end = static_cast<int32_t>(EndedRequest::kShortestPrefix);
  uint64_t prefix = 0;
  bool agrees = true;
  for (const uint32_t hash : request.prefixes()) {
    prefix = (prefix ^ hash) * kOdd;
    prefix ^= prefix >> 32;
    size_t& longest = longest_.try_emplace(prefix, index).first->second;
    if (agrees && longest == index) most = end - 1;
    agrees = agrees && longest != index;
    if (agrees) prompt = {.length = prompt.length, .num_shared = end, .donor = longest};
    if (prompts_[longest].length < prompt.length) longest = index;
    end *= 2;
  }
  if (prompt.num_shared == 0) return;
  const int32_t most_cached = std::min({request.cached_tokens, most, prompts_[prompt.donor].length});
  prompt.num_shared = std::max(prompt.num_shared, most_cached);
  // So a chain of donors is never longer than the prompt.
  while (prompts_[prompt.donor].num_shared >= prompt.num_shared)
    prompt.donor = prompts_[prompt.donor].donor;
  prompts_.back() = prompt;
}

std::vector<TokenId> ReplayPrompts::draw(size_t request) const {
  std::vector<TokenId> tokens(static_cast<size_t>(prompts_[request].length));
  for (int32_t end = prompts_[request].length; end > 0; request = prompts_[request].donor) {
    const int32_t begin = std::min(prompts_[request].num_shared, end);
    std::mt19937_64 random(seed_ ^ (request + 1) * kOdd);
    std::ranges::copy(random_tokens(tokenizer_, end - begin, random), tokens.begin() + begin);
    end = begin;
  }
  return tokens;
}

void RequestFigures::add(const EndedRequest& request) {
  const bool is_cancelled = request.finish == name(FinishReason::cancelled);
  ++requests_;
  cancelled_ += is_cancelled ? 1 : 0;
  with_grammar_ += request.has_grammar ? 1 : 0;
  with_drafts_ += request.drafts > 0 ? 1 : 0;
  draft_tokens_ += request.draft_tokens;
  accepted_tokens_ += request.accepted_tokens;
  prompt_tokens_ += request.prompt_tokens;
  cached_tokens_ += request.cached_tokens;
  output_tokens_ += request.output_tokens;
  begin_ns_ = std::min(begin_ns_, request.arrival_ns);
  end_ns_ = std::max(end_ns_, request.end_ns);
  e2e_ms_.push_back(static_cast<double>(request.end_ns - request.arrival_ns) * 1e-6);
  if (request.first_token_ns == 0) return;
  ttft_ms_.push_back(static_cast<double>(request.first_token_ns - request.arrival_ns) * 1e-6);
  if (!is_cancelled && request.output_tokens > 1)
    itl_ms_.push_back(static_cast<double>(request.decode_ns()) * 1e-6 / (request.output_tokens - 1));
}

Json RequestFigures::json() const {
  const double duration_s = end_ns_ > begin_ns_ ? static_cast<double>(end_ns_ - begin_ns_) * 1e-9 : 0.0;
  return {{"requests", requests_},
          {"cancelled", cancelled_},
          {"with_grammar", with_grammar_},
          {"with_drafts", with_drafts_},
          {"draft_tokens", draft_tokens_},
          {"accepted_tokens", accepted_tokens_},
          {"prompt_tokens", prompt_tokens_},
          {"cached_tokens", cached_tokens_},
          {"output_tokens", output_tokens_},
          {"duration", duration_s},
          {"busy_s", static_cast<double>(busy_.ns) * 1e-9},
          {"output_throughput", duration_s > 0.0 ? static_cast<double>(output_tokens_) / duration_s : 0.0},
          {"mean_e2e_ms", mean_of(e2e_ms_)},
          {"median_ttft_ms", median_of(ttft_ms_)},
          {"p99_ttft_ms", percentile_of(ttft_ms_, 0.99)},
          {"median_itl_ms", median_of(itl_ms_)},
          {"p99_itl_ms", percentile_of(itl_ms_, 0.99)}};
}

Json replay_json(const RecordedLoad& load, double speed, const RequestFigures& replayed,
                 const ProfileHeader& now) {
  RequestFigures figures(load.busy);
  for (const EndedRequest& request : load.requests)
    figures.add(request);
  Json recorded = figures.json(), again = replayed.json(), ratio;
  for (const auto& [figure, value] : recorded.items())
    ratio[figure] = value > 0.0 ? Json(again[figure].get<double>() / value.get<double>()) : Json();
  return {{"file", load.path},
          {"device", now.device},
          {"speed", std::isfinite(speed) ? Json(speed) : Json("inf")},
          {"recorded", recorded},
          {"replayed", again},
          {"ratio", ratio},
          {"differences", differences(settings_of(load.header), settings_of(now))},
          {"notes", notes_of(load, recorded)}};
}

Table replay_table(const Json& replay) {
  Table table{.title = "replay", .columns = {"metric", "recorded", "replayed", "ratio"}};
  for (const auto& [figure, value] : replay["recorded"].items())
    table.add(figure, cell_of_json(value), cell_of_json(replay["replayed"][figure]),
              cell_of_json(replay["ratio"][figure]));
  for (const Json& each : replay["differences"])
    table.rows.push_back({each["option"], each["recorded"], each["replayed"], "differs"});
  return table;
}

}  // namespace minfer
