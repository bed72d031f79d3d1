#include "server/bench/load_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>

#include "server/bench/bench_statistics.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

const std::vector<double>& values_of(const LoadMetrics& metrics, const std::string& metric) {
  if (metric == "ttft") return metrics.ttft_ms;
  if (metric == "tpot") return metrics.tpot_ms;
  return metric == "itl" ? metrics.itl_ms : metrics.e2el_ms;
}

void add_statistics(Json& json, const std::string& metric, const std::vector<double>& values,
                    const std::vector<double>& percentiles) {
  json["mean_" + metric + "_ms"] = mean_of(values);
  json["median_" + metric + "_ms"] = median_of(values);
  json["std_" + metric + "_ms"] = population_deviation_of(values);
  for (double percentile : percentiles)
    json[fmt::format("p{}_{}_ms", percentile, metric)] = percentile_of(values, percentile / 100.0);
}

std::string utc_date() {
  std::array<char, 32> date{};
  const std::time_t now = std::time(nullptr);
  std::strftime(date.data(), date.size(), "%Y%m%d-%H%M%S", std::gmtime(&now));
  return date.data();
}

/// What was asked for.
void add_settings(Json& json, const WorkloadOptions& workload, size_t num_records,
                  const LoadSubject& subject) {
  json["date"] = utc_date();
  json["backend"] = subject.backend;
  json["model_id"] = subject.model;
  if (!subject.base_url.empty()) json["base_url"] = subject.base_url;
  if (!subject.tokenizer.empty()) json["tokenizer_id"] = subject.tokenizer;
  json["num_prompts"] = workload.num_prompts > 0 ? static_cast<size_t>(workload.num_prompts) : num_records;
  if (workload.num_turns > 1) json["num_turns"] = workload.num_turns;
  if (workload.replay.empty()) {
    json["request_rate"] = std::isfinite(workload.request_rate) ? Json(workload.request_rate) : Json("inf");
    json["burstiness"] = workload.burstiness;
  }
  json["max_concurrency"] = workload.max_concurrency > 0 ? Json(workload.max_concurrency) : Json();
}

}  // namespace

Json load_result_json(const LoadResult& result, const WorkloadOptions& workload,
                      const LoadReportOptions& options, const LoadSubject& subject) {
  const LoadMetrics metrics = compute_metrics(result.records, options.goodput);
  const auto per_second = [&](int64_t count) { return static_cast<double>(count) / result.duration_s; };
  Json json;
  add_settings(json, workload, result.records.size(), subject);
  if (result.interrupted) json["interrupted"] = true;
  json["duration"] = result.duration_s;
  json["completed"] = metrics.completed;
  json["failed"] = metrics.failed;
  json["error_counts"] = Json(metrics.errors.empty() ? Json::object() : Json(metrics.errors));
  json["total_input_tokens"] = metrics.input_tokens;
  json["total_output_tokens"] = metrics.output_tokens;
  json["request_throughput"] = per_second(metrics.completed);
  json["request_goodput"] = options.goodput.empty() ? Json() : Json(per_second(metrics.good));
  json["output_throughput"] = per_second(metrics.output_tokens);
  json["total_token_throughput"] = per_second(metrics.input_tokens + metrics.output_tokens);
  json["max_output_tokens_per_s"] = metrics.max_output_tokens_per_s;
  json["max_concurrent_requests"] = metrics.max_concurrent_requests;
  if (const SpeculationCounts& drafted = result.drafted; drafted.drafts > 0) {
    const auto accepted = static_cast<double>(drafted.accepted_tokens);
    json["spec_decode_num_drafts"] = drafted.drafts;
    json["spec_decode_draft_tokens"] = drafted.draft_tokens;
    json["spec_decode_accepted_tokens"] = drafted.accepted_tokens;
    json["spec_decode_acceptance_rate"] = accepted / static_cast<double>(drafted.draft_tokens);
    json["spec_decode_acceptance_length"] = 1.0 + accepted / static_cast<double>(drafted.drafts);
  }
  for (const std::string& metric : options.metrics)
    add_statistics(json, metric, values_of(metrics, metric), options.percentiles);
  return json;
}

void add_details(Json& json, const LoadResult& result) {
  std::vector<const RequestRecord*> records;
  for (const RequestRecord& record : result.records)
    records.push_back(&record);
  std::ranges::sort(records, {}, [](const RequestRecord* record) { return record->start_ns; });
  for (const char* field : {"input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors"})
    json[field] = Json::array();
  for (const RequestRecord* record : records) {
    std::vector<double> itls_s = record->itl_ms();
    for (double& latency : itls_s)
      latency *= 1e-3;
    json["input_lens"].push_back(record->input_tokens);
    json["output_lens"].push_back(record->completed() ? record->output_tokens : 0);
    json["ttfts"].push_back(record->ttft_ms() * 1e-3);
    json["itls"].push_back(std::move(itls_s));
    json["generated_texts"].push_back(record->text);
    json["errors"].push_back(record->problem());
  }
}

Table load_result_table(const Json& json) {
  Table table{.title = "load test", .columns = {"metric", "value"}, .rows = {}};
  for (const auto& [field, value] : json.items()) {
    if (value.is_null() || value.is_object()) continue;
    table.rows.push_back({field, value.is_number_float() ? fmt::format("{:.2f}", value.get<double>())
                                 : value.is_string()     ? value.get<std::string>()
                                                         : value.dump()});
  }
  for (const auto& [kind, count] : json.at("error_counts").items())
    table.rows.push_back({"error: " + kind, count.dump()});
  return table;
}

}  // namespace minfer
