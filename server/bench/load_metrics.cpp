#include "server/bench/load_metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "kernels/error.h"

namespace minfer {
namespace {

double to_ms(int64_t ns) {
  return static_cast<double>(ns) * 1e-6;
}

bool meets(const RequestRecord& record, const Goodput& goodput) {
  return std::ranges::all_of(goodput, [&](const auto& bound) {
    const auto& [metric, limit_ms] = bound;
    const double value_ms = metric == "ttft"   ? record.ttft_ms()
                            : metric == "tpot" ? record.tpot_ms()
                                               : record.e2el_ms();
    return value_ms <= limit_ms;
  });
}

/// Tokens and active requests in each second since the first completed request was sent.
class Seconds {
 public:
  Seconds(int64_t begin_ns, int64_t end_ns)
      : begin_ns_(begin_ns),
        tokens_(static_cast<size_t>((end_ns - begin_ns) / kSecond) + 1),
        active_(tokens_.size()) {}

  void add(const RequestRecord& record) {
    const double tokens_a_chunk =
        static_cast<double>(record.output_tokens) / static_cast<double>(record.chunk_ns.size());
    for (int64_t time_ns : record.chunk_ns)
      tokens_[index(time_ns)] += tokens_a_chunk;
    for (size_t second = index(record.start_ns); second <= index(record.end_ns()); ++second)
      ++active_[second];
  }

  double most_tokens() const { return std::ranges::max(tokens_); }
  int64_t most_active() const { return std::ranges::max(active_); }

 private:
  static constexpr int64_t kSecond = 1'000'000'000;
  size_t index(int64_t time_ns) const { return static_cast<size_t>((time_ns - begin_ns_) / kSecond); }

  int64_t begin_ns_;
  std::vector<double> tokens_;
  std::vector<int64_t> active_;
};

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
  metrics.ttft_ms.push_back(record.ttft_ms());
  if (record.output_tokens > 1) metrics.tpot_ms.push_back(record.tpot_ms());
  const std::vector<double> itl_ms = record.itl_ms();
  metrics.itl_ms.insert(metrics.itl_ms.end(), itl_ms.begin(), itl_ms.end());
  metrics.e2el_ms.push_back(record.e2el_ms());
}

void add_peaks(LoadMetrics& metrics, const std::vector<RequestRecord>& records) {
  int64_t begin_ns = INT64_MAX, end_ns = INT64_MIN;
  for (const RequestRecord& record : records) {
    if (!record.completed()) continue;
    begin_ns = std::min(begin_ns, record.start_ns);
    end_ns = std::max(end_ns, record.end_ns());
  }
  if (metrics.completed == 0) return;
  Seconds seconds(begin_ns, end_ns);
  for (const RequestRecord& record : records) {
    if (record.completed()) seconds.add(record);
  }
  metrics.max_output_tokens_per_s = seconds.most_tokens();
  metrics.max_concurrent_requests = seconds.most_active();
}

}  // namespace

std::string RequestRecord::problem() const {
  return error_detail.empty() ? error : fmt::format("{}: {}", error, error_detail);
}

double RequestRecord::ttft_ms() const {
  return chunk_ns.empty() ? 0.0 : to_ms(chunk_ns.front() - start_ns);
}

double RequestRecord::e2el_ms() const {
  return to_ms(end_ns() - start_ns);
}

double RequestRecord::tpot_ms() const {
  if (output_tokens <= 1) return 0.0;
  return (e2el_ms() - ttft_ms()) / static_cast<double>(output_tokens - 1);
}

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

}  // namespace minfer
