#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "profiling/report/text/table.h"
#include "server/bench/bench_workload.h"
#include "server/bench/load_metrics.h"

namespace minfer {

/// What a load test's report shows.
struct LoadReportOptions {
  std::vector<std::string> metrics{"ttft", "tpot", "itl", "e2el"};
  std::vector<double> percentiles{90.0, 99.0};
  Goodput goodput;  ///< empty: none is counted
};

/// What was tested.
struct LoadSubject {
  std::string backend;    ///< "minfer", or for servers vLLM's name of the API: "openai" or "openai-chat"
  std::string model;      ///< a file's, or as the server calls it
  std::string base_url;   ///< of a server
  std::string tokenizer;  ///< where random tokens are from, if it is not the model
};

/// The result under the names of vLLM's `bench serve --save-result`, and `errors` counted by kind in
/// `error_counts`.
nlohmann::ordered_json load_result_json(const LoadResult& result, const WorkloadOptions& workload,
                                        const LoadReportOptions& options, const LoadSubject& subject);

/// Adds what vLLM's --save-detailed adds: lengths, latencies (in seconds), texts and errors of every request,
/// in the order in which they were sent.
void add_details(nlohmann::ordered_json& json, const LoadResult& result);

/// The result for people.
Table load_result_table(const nlohmann::ordered_json& json);

}  // namespace minfer
