#include <algorithm>
#include <cmath>

#include "server/bench/bench_output.h"
#include "server/bench/replay/replay.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

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

std::string cell(const Json& value) {
  if (value.is_null()) return "-";
  return value.is_number_float() ? fmt::format("{:.2f}", value.get<double>()) : value.dump();
}

}  // namespace

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
  Table table{.title = "replay", .columns = {"metric", "recorded", "replayed", "ratio"}, .rows = {}};
  for (const auto& [figure, value] : replay["recorded"].items())
    table.rows.push_back(
        {figure, cell(value), cell(replay["replayed"][figure]), cell(replay["ratio"][figure])});
  for (const Json& each : replay["differences"])
    table.rows.push_back({each["option"], each["recorded"], each["replayed"], "differs"});
  return table;
}

}  // namespace minfer
