#include "server/bench/load_metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <iterator>
#include <span>

#include <fmt/chrono.h>

#include "kernels/base/error.h"
#include "server/bench/bench_output.h"

namespace minfer {
namespace {

bool meets(const RequestRecord& record, const Goodput& goodput) {
  return std::ranges::all_of(goodput, [&](const auto& bound) {
    const auto& [metric, limit_ms] = bound;
    const double value_ms = metric == "ttft"   ? record.ttft_ms()
                            : metric == "tpot" ? record.tpot_ms()
                                               : record.e2el_ms();
    return value_ms <= limit_ms;
  });
}

void count(LoadMetrics& metrics, const RequestRecord& record, const Goodput& goodput) {
  if (!record.completed()) {
    ++metrics.failed;
    ++metrics.errors[record.error];
    return;
  }
  ++metrics.completed;
  metrics.input_tokens += record.input_tokens;
  metrics.output_tokens += record.output_tokens;
  if (record.chunk_ns.empty())
    return;  // cancelled before its first token, or only scored: it has no latencies
  metrics.good += meets(record, goodput) ? 1 : 0;
  metrics.latencies_ms["ttft"].push_back(record.ttft_ms());
  if (record.output_tokens > 1) metrics.latencies_ms["tpot"].push_back(record.tpot_ms());
  std::ranges::move(record.itl_ms(), std::back_inserter(metrics.latencies_ms["itl"]));
  metrics.latencies_ms["e2el"].push_back(record.e2el_ms());
}

/// The peaks of tokens and of active requests in the seconds since the first completed request was sent.
void add_peaks(LoadMetrics& metrics, std::span<const RequestRecord> records) {
  constexpr int64_t kSecondNs = 1'000'000'000;
  int64_t begin_ns = INT64_MAX;
  for (const RequestRecord& record : records)
    if (record.completed()) begin_ns = std::min(begin_ns, record.start_ns);
  std::map<int64_t, double> tokens;  // by second
  std::map<int64_t, int64_t> active;
  for (const RequestRecord& record : records) {
    if (!record.completed()) continue;
    const double tokens_a_chunk =
        static_cast<double>(record.output_tokens) / static_cast<double>(record.chunk_ns.size());
    for (const int64_t time_ns : record.chunk_ns) {
      double& sum = tokens[(time_ns - begin_ns) / kSecondNs];
      metrics.max_output_tokens_per_s = std::max(metrics.max_output_tokens_per_s, sum += tokens_a_chunk);
    }
    for (int64_t second = (record.start_ns - begin_ns) / kSecondNs;
         second <= (record.end_ns() - begin_ns) / kSecondNs; ++second)
      metrics.max_concurrent_requests = std::max(metrics.max_concurrent_requests, ++active[second]);
  }
}

using Json = nlohmann::ordered_json;

/// The options of the load.
void add_settings(Json& json, const WorkloadOptions& workload, size_t num_records,
                  const LoadSubject& subject) {
  json["date"] = fmt::format("{:%Y%m%d-%H%M%S}", fmt::gmtime(std::time(nullptr)));
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

std::vector<double> RequestRecord::itl_ms() const {
  std::vector<double> latencies;
  for (size_t i = 1; i < chunk_ns.size(); ++i)
    latencies.push_back(to_ms(chunk_ns[i] - chunk_ns[i - 1]));
  return latencies;
}

Goodput parse_goodput(const std::vector<std::string>& pairs) {
  Goodput goodput;
  for (const std::string& pair : pairs) {
    const size_t colon = std::min(pair.find(':'), pair.size());
    const std::string metric = pair.substr(0, colon);
    const char* end = pair.data() + pair.size();
    double limit_ms = -1.0;
    const auto parsed = std::from_chars(pair.data() + std::min(colon + 1, pair.size()), end, limit_ms);
    const bool is_number = parsed.ec == std::errc() && parsed.ptr == end && std::isfinite(limit_ms);
    if ((metric != "ttft" && metric != "tpot" && metric != "e2el") || !is_number || limit_ms < 0.0) {
      fail("--goodput: \"{}\" is not METRIC:MILLISECONDS with ttft, tpot or e2el, e.g. ttft:200", pair);
    }
    goodput[metric] = limit_ms;
  }
  return goodput;
}

LoadMetrics compute_metrics(const std::vector<RequestRecord>& records, const Goodput& goodput) {
  LoadMetrics metrics;
  for (const RequestRecord& record : records)
    count(metrics, record, goodput);
  add_peaks(metrics, records);
  return metrics;
}

Json load_result_json(const LoadResult& result, const WorkloadOptions& workload,
                      const LoadReportOptions& options, const LoadSubject& subject) {
  LoadMetrics metrics = compute_metrics(result.records, options.goodput);
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
  for (const std::string& metric : options.metrics) {
    const std::vector<double>& values = metrics.latencies_ms[metric];
    json["mean_" + metric + "_ms"] = mean_of(values);
    json["median_" + metric + "_ms"] = median_of(values);
    json["std_" + metric + "_ms"] = population_deviation_of(values);
    for (double percentile : options.percentiles)
      json[fmt::format("p{}_{}_ms", percentile, metric)] = percentile_of(values, percentile / 100.0);
  }
  return json;
}

void add_details(Json& json, const LoadResult& result) {
  std::vector<RequestRecord> records = result.records;
  std::ranges::sort(records, {}, &RequestRecord::start_ns);
  for (const char* field : {"input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors"})
    json[field] = Json::array();
  for (const RequestRecord& record : records) {
    json["input_lens"].push_back(record.input_tokens);
    json["output_lens"].push_back(record.completed() ? record.output_tokens : 0);
    json["ttfts"].push_back(record.ttft_ms() * 1e-3);
    Json& itls_s = json["itls"].emplace_back(Json::array());
    for (const double latency_ms : record.itl_ms())
      itls_s.push_back(latency_ms * 1e-3);
    json["generated_texts"].push_back(record.text);
    json["errors"].push_back(record.problem());
  }
}

Table load_result_table(const Json& json) {
  Table table{.title = "load test", .columns = {"metric", "value"}};
  for (const auto& [field, value] : json.items()) {
    if (!value.is_null() && !value.is_object()) table.add(field, cell_of_json(value));
  }
  for (const auto& [kind, count] : json.at("error_counts").items())
    table.add("error: " + kind, count.dump());
  return table;
}

}  // namespace minfer
