#include "server/bench_load.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>
#include <unordered_map>

#include "server/bench_speed.h"
#include "server/terminal.h"

namespace minfer {
namespace {

/// Redraws one line of standard error, a few times a second at most, if it is a terminal.
class ProgressBar {
 public:
  explicit ProgressBar(size_t total) : total_(total), shown_(is_terminal(stderr)) {}
  ~ProgressBar() {
    if (shown_) fmt::print(stderr, "\r\x1b[K");
  }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(size_t done, int64_t output_tokens, int64_t time_ns, int64_t begin_ns) {
    if (!shown_ || time_ns < next_ns_) return;
    next_ns_ = time_ns + 200'000'000;
    const size_t filled = total_ == 0 ? kWidth : kWidth * done / total_;
    const double seconds = static_cast<double>(time_ns - begin_ns) * 1e-9;
    fmt::print(stderr, "\r[{}{}] {}/{} requests  {:.0f} tokens/s\x1b[K", std::string(filled, '#'),
               std::string(kWidth - filled, '.'), done, total_, static_cast<double>(output_tokens) / seconds);
    std::fflush(stderr);
  }

 private:
  static constexpr size_t kWidth = 30;
  size_t total_;
  bool shown_;
  int64_t next_ns_ = 0;
};

double to_ms(int64_t ns) {
  return static_cast<double>(ns) * 1e-6;
}

class LoadTest {
 public:
  LoadTest(Engine& engine, const std::vector<TimedRequest>& workload, int32_t max_concurrency)
      : engine_(engine),
        workload_(workload),
        max_in_flight_(max_concurrency > 0 ? static_cast<size_t>(max_concurrency) : workload.size()) {}

  LoadResult run() {
    ProgressBar bar(workload_.size());
    begin_ns_ = now_ns();
    while (done_ < workload_.size()) {
      send_due();
      if (engine_.has_work()) {
        for (const RequestOutput& output : engine_.step())
          record(output);
      } else {
        sleep_until_next();
      }
      bar.update(done_, result_.output_tokens, now_ns(), begin_ns_);
    }
    result_.duration_s = static_cast<double>(now_ns() - begin_ns_) * 1e-9;
    return std::move(result_);
  }

 private:
  int64_t arrival_ns(size_t index) const {
    return begin_ns_ + static_cast<int64_t>(workload_[index].arrival_s * 1e9);
  }

  void send_due() {
    while (sent_ < workload_.size() && in_flight_.size() < max_in_flight_ && arrival_ns(sent_) <= now_ns()) {
      const Request& request = workload_[sent_++].request;
      in_flight_[request.id] = now_ns();
      engine_.submit(request);
    }
  }

  void sleep_until_next() const {
    if (sent_ < workload_.size())
      std::this_thread::sleep_for(std::chrono::nanoseconds(arrival_ns(sent_) - now_ns()));
  }

  void record(const RequestOutput& output) {
    const int64_t time_ns = now_ns();
    int64_t& last_ns = in_flight_.at(output.id);
    const auto num_tokens = static_cast<int64_t>(output.tokens.size());
    result_.output_tokens += num_tokens;
    if (num_tokens > 0) {
      const bool is_first = output.output_tokens == num_tokens;
      (is_first ? result_.ttft_ms : result_.itl_ms).push_back(to_ms(time_ns - last_ns));
      last_ns = time_ns;
    }
    if (!output.finish) return;
    ++done_;
    in_flight_.erase(output.id);
    if (output.finish == FinishReason::refused) {
      ++result_.failed;
      return;
    }
    ++result_.completed;
    result_.input_tokens += output.prompt_tokens;
    result_.e2el_ms.push_back(to_ms(time_ns - output.arrival_ns));
    if (output.output_tokens > 1) {
      result_.tpot_ms.push_back(to_ms(time_ns - output.first_token_ns) / (output.output_tokens - 1));
    }
  }

  Engine& engine_;
  const std::vector<TimedRequest>& workload_;
  size_t max_in_flight_;
  LoadResult result_;
  int64_t begin_ns_ = 0;
  size_t sent_ = 0;
  size_t done_ = 0;
  std::unordered_map<std::string, int64_t> in_flight_;  ///< id and the time of its sending or latest response
};

void add_statistics(nlohmann::ordered_json& json, const std::string& metric,
                    const std::vector<double>& values) {
  json["mean_" + metric + "_ms"] = mean_of(values);
  json["median_" + metric + "_ms"] = median_of(values);
  json["std_" + metric + "_ms"] = deviation_of(values);
  json["p90_" + metric + "_ms"] = percentile_of(values, 0.90);
  json["p99_" + metric + "_ms"] = percentile_of(values, 0.99);
}

}  // namespace

LoadResult run_load(Engine& engine, const std::vector<TimedRequest>& workload, int32_t max_concurrency) {
  return LoadTest(engine, workload, max_concurrency).run();
}

nlohmann::ordered_json load_result_json(const LoadResult& result, const WorkloadOptions& options,
                                        const std::string& model) {
  std::array<char, 32> date{};
  const std::time_t now = std::time(nullptr);
  std::strftime(date.data(), date.size(), "%Y%m%d-%H%M%S", std::gmtime(&now));
  nlohmann::ordered_json json;
  json["date"] = date.data();
  json["backend"] = "minfer";
  json["model_id"] = model;
  json["num_prompts"] = result.completed + result.failed;
  json["request_rate"] = options.request_rate > 0.0 ? nlohmann::ordered_json(options.request_rate)
                                                    : nlohmann::ordered_json("inf");
  json["max_concurrency"] = options.max_concurrency > 0 ? nlohmann::ordered_json(options.max_concurrency)
                                                        : nlohmann::ordered_json();
  json["duration"] = result.duration_s;
  json["completed"] = result.completed;
  json["failed"] = result.failed;
  json["total_input_tokens"] = result.input_tokens;
  json["total_output_tokens"] = result.output_tokens;
  json["request_throughput"] = static_cast<double>(result.completed) / result.duration_s;
  json["output_throughput"] = static_cast<double>(result.output_tokens) / result.duration_s;
  json["total_token_throughput"] =
      static_cast<double>(result.input_tokens + result.output_tokens) / result.duration_s;
  add_statistics(json, "ttft", result.ttft_ms);
  add_statistics(json, "tpot", result.tpot_ms);
  add_statistics(json, "itl", result.itl_ms);
  add_statistics(json, "e2el", result.e2el_ms);
  return json;
}

}  // namespace minfer
