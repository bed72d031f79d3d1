#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <prometheus/registry.h>

#include "engine/request/request.h"
#include "models/grammar/grammar_cache.h"
#include "profiling/record/recorder.h"
#include "server/api/request/api_context.h"
#include "server/kv_events/kv_event_publisher.h"
#include "server/serving/engine/engine_service.h"

namespace minfer {

/// The times at which a request and its tokens came, as its client sees them.
struct TokenTimes {
  int64_t arrival_ns = 0;     ///< its last byte had arrived
  int64_t last_token_ns = 0;  ///< the newest token that has been counted; 0: none yet
};

/// Percentiles of the last few thousand observations, in seconds; 0 if there are none.
struct RecentLatency {
  double p50 = 0.0, p90 = 0.0, p99 = 0.0;
};

/// Counters, gauges and histograms for Prometheus: under vLLM's names (vllm:...), so that dashboards made for it work,
/// and under minfer:... for what only this engine knows (phases, host spans). Any thread may call every function.
class Metrics final : public StepSink {
 public:
  /// `registry`: where they are kept. Models whose names differ may share one; a name that comes again goes on counting.
  Metrics(const std::string& model_name, const EngineOptions& options,
          std::shared_ptr<prometheus::Registry> registry);
  ~Metrics() override;
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// Counts a request that has been accepted.
  void count_request(int32_t n, int32_t max_tokens);
  /// Counts the next output of one of its choices. Tokens that come together count as if they had come at even intervals.
  void count_output(const RequestOutput& output, TokenTimes& times);
  /// Counts a request whose choices have all ended: the tokens of the longest.
  void count_answer(int32_t longest_choice);
  /// Counts a step.
  void consume(const StepRecord& record) noexcept override;
  bool wants_requests() const noexcept override { return false; }

  RecentLatency recent_ttft() const;
  RecentLatency recent_itl() const;
  /// Tokens generated since the start.
  uint64_t num_generated_tokens() const;

  /// Sets the gauges, and counters that are counted elsewhere.
  /// `kv_events` absent: none are published; `grammars` absent: the device takes none.
  void update(const EngineStatus& status, const std::optional<KvEventCounts>& kv_events = {},
              const std::optional<GrammarCache::Counts>& grammars = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The metrics of a server's connections, and the text of all metrics. Any thread.
class HttpMetrics {
 public:
  /// `model_name`: a label; empty: the server has several models. `registry`: with the models' metrics.
  HttpMetrics(const std::string& model_name, std::shared_ptr<prometheus::Registry> registry);

  void count_response(int status);
  /// Everything in the registry, in Prometheus's text format. `models`: of a server with several.
  std::string text(size_t num_connections, std::span<const ListedModel> models = {});

 private:
  const std::shared_ptr<prometheus::Registry> registry_;
  std::map<std::string, std::string> labels_;
};

}  // namespace minfer
