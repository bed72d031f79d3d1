#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/options/speculation_options.h"
#include "profiling/text/table.h"
#include "server/bench/bench_workload.h"

namespace minfer {

/// One request of a load test as its client saw it. Times are of now_ns().
struct RequestRecord {
  int64_t start_ns = 0;           ///< when it was sent; waiting for its turn does not count
  std::vector<int64_t> chunk_ns;  ///< when each response that holds output came
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  std::string text;          ///< generated text, if it was asked for
  std::string error;         ///< kind of failure, equal for equal failures; empty: success
  std::string error_detail;  ///< the server's message, for people

  bool completed() const { return error.empty(); }
  /// Kind and detail of the failure; empty if it went well.
  std::string problem() const { return error_detail.empty() ? error : error + ": " + error_detail; }
  int64_t end_ns() const { return chunk_ns.empty() ? start_ns : chunk_ns.back(); }
  /// Time to first token: to the first response with output.
  double ttft_ms() const { return chunk_ns.empty() ? 0.0 : to_ms(chunk_ns.front() - start_ns); }
  /// End-to-end latency: to the last response with output.
  double e2el_ms() const { return to_ms(end_ns() - start_ns); }
  /// Time per output token after the first: (e2el - ttft) / (output tokens - 1); 0 for a single token.
  double tpot_ms() const {
    return output_tokens <= 1 ? 0.0 : (e2el_ms() - ttft_ms()) / static_cast<double>(output_tokens - 1);
  }
  /// Inter-token latencies: the times between two responses, which may hold several tokens.
  std::vector<double> itl_ms() const;

  static double to_ms(int64_t ns) { return static_cast<double>(ns) * 1e-6; }
};

/// The bounds that good requests meet, in milliseconds by metric: ttft, tpot, e2el (DistServe, arXiv:2401.09670).
using Goodput = std::map<std::string, double>;

/// Reads "ttft:200" and the like. Throws Error naming the pair that cannot be understood.
Goodput parse_goodput(const std::vector<std::string>& pairs);

/// The measurements of a load test.
struct LoadResult {
  std::vector<RequestRecord> records;  ///< answered requests, in order of their ends
  double duration_s = 0.0;
  SpeculationCounts drafted;  ///< the engine's speculative decoding; not known for a server
  bool interrupted = false;   ///< ended early by Ctrl-C: requests under way then are in no record
};

/// A load test's figures, by the formulas of vLLM's `bench serve`. Failed requests count only in `failed` and `errors`.
struct LoadMetrics {
  int64_t completed = 0;
  int64_t failed = 0;
  std::map<std::string, int64_t> errors;  ///< kind -> requests
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  int64_t good = 0;  ///< requests that met all of the goodput's bounds
  /// The most tokens in one of the seconds since the first request. vLLM counts responses. Here each response
  /// counts for an equal share of its request's tokens, which is the same where a response holds one token.
  double max_output_tokens_per_s = 0.0;
  int64_t max_concurrent_requests = 0;  ///< most requests that were active in one of those seconds
  /// By metric: ttft and e2el of each completed request that had output, tpot of each of two tokens or more, all itl.
  std::map<std::string, std::vector<double>> latencies_ms;
};

LoadMetrics compute_metrics(const std::vector<RequestRecord>& records, const Goodput& goodput);

/// The contents of a load test's report.
struct LoadReportOptions {
  std::vector<std::string> metrics{"ttft", "tpot", "itl", "e2el"};
  std::vector<double> percentiles{90.0, 99.0};
  Goodput goodput;  ///< empty: none is counted
};

/// The subject of a load test.
struct LoadSubject {
  std::string backend;    ///< "minfer", or for servers vLLM's name of the API: "openai" or "openai-chat"
  std::string model;      ///< the file's name, or the server's name of it
  std::string base_url;   ///< of a server
  std::string tokenizer;  ///< source of random tokens, if it is not the model
};

/// The result under the names of vLLM's `bench serve --save-result`; `error_counts` has the errors by kind.
nlohmann::ordered_json load_result_json(const LoadResult& result, const WorkloadOptions& workload,
                                        const LoadReportOptions& options, const LoadSubject& subject);

/// Adds vLLM's --save-detailed: lengths, latencies (in seconds), texts and errors of every request, in the order of sending.
void add_details(nlohmann::ordered_json& json, const LoadResult& result);

/// The result for people.
Table load_result_table(const nlohmann::ordered_json& json);

}  // namespace minfer
