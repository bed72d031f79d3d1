#include "server/serving/engine/metrics.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <sstream>

#include <fmt/format.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "engine/options/sizes.h"

namespace minfer {
namespace {

using PrometheusCounter = prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;
using Labels = std::map<std::string, std::string>;

// vLLM's buckets; the buckets for the time between tokens begin below 10 ms here.
const Buckets kFirstTokenBuckets{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
                                 1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
const Buckets kTokenBuckets{0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.025,
                            0.05,   0.075, 0.1,   0.15,  0.2,   0.3,   0.4,    0.5,  0.75,
                            1.0,    2.5,   5.0,   7.5,   10.0,  20.0,  40.0,   80.0};
const Buckets kRequestBuckets{0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
                              30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
const Buckets kStepTokenBuckets{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
const Buckets kChoiceBuckets{1, 2, 5, 10, 20};

/// 1, 2, 5, 10, 20, 50, ... up to `limit`.
Buckets one_two_five(int32_t limit) {
  Buckets buckets;
  for (double scale = 1; scale <= limit; scale *= 10) {
    for (const double step : {1, 2, 5}) {
      if (step * scale <= limit) buckets.push_back(step * scale);
    }
  }
  return buckets;
}

double seconds(int64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

/// The newest few thousand observations of a latency.
class LatencyWindow {
 public:
  void add(double value) {
    const std::lock_guard lock(mutex_);
    values_[count_++ % values_.size()] = value;
  }

  RecentLatency percentiles() const {
    std::vector<double> sorted;
    {
      const std::lock_guard lock(mutex_);
      sorted.assign(values_.begin(),
                    values_.begin() + static_cast<ptrdiff_t>(std::min(count_, values_.size())));
    }
    if (sorted.empty()) return {};
    std::ranges::sort(sorted);
    const auto at = [&](double share) {
      return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
    };
    return {.p50 = at(0.5), .p90 = at(0.9), .p99 = at(0.99)};
  }

 private:
  mutable std::mutex mutex_;
  std::array<double, 4096> values_{};
  size_t count_ = 0;
};

}  // namespace

struct Metrics::Impl {
  explicit Impl(const std::string& model_name) : labels{{"model_name", model_name}, {"engine", "0"}} {}

  prometheus::Registry registry;
  Labels labels;

  Labels with(Labels more) const {
    more.insert(labels.begin(), labels.end());
    return more;
  }
  PrometheusCounter& counter(const std::string& name, const std::string& help, const Labels& more = {}) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(with(more));
  }
  Gauge& gauge(const std::string& name, const std::string& help, const Labels& more = {}) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(with(more));
  }
  Histogram& histogram(const std::string& name, const std::string& help, const Buckets& buckets,
                       const Labels& more = {}) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(with(more), buckets);
  }

  Gauge *running, *waiting, *busy, *kv_usage, *gpu_cache_usage, *connections;
  PrometheusCounter *prompt_tokens, *generation_tokens, *preemptions, *prefix_queries, *prefix_hits;
  Histogram *first_token, *inter_token, *output_token, *request_output_token, *end_to_end, *queue, *inference,
      *prefill, *decode, *request_prompt, *request_generation, *request_longest, *request_n,
      *request_max_tokens, *step_tokens;
  std::array<PrometheusCounter*, 5> finished{};               ///< by FinishReason
  std::array<PrometheusCounter*, 3> steps{}, step_seconds{};  ///< by StepPhase
  std::array<PrometheusCounter*, kHostSpans> host_seconds{};
  PrometheusCounter *device_seconds, *graph_steps, *constrained_rows, *forced_tokens;
  PrometheusCounter *drafts, *draft_tokens, *accepted_tokens;
  Histogram *request_acceptance, *request_tokens_per_step;  ///< of requests with drafts
  PrometheusCounter *grammars_compiled = nullptr, *grammars_reused = nullptr, *grammars_refused = nullptr;
  PrometheusCounter* grammar_seconds = nullptr;  ///< null: nobody has asked for these
  Gauge* grammar_bytes = nullptr;
  PrometheusCounter *kv_events_published = nullptr, *kv_events_dropped = nullptr;  ///< null: no KV events
  Gauge* kv_events_queued = nullptr;
  std::mutex mutex;  ///< guards what is registered on its first occurrence
  std::map<int, PrometheusCounter*> responses;
  LatencyWindow ttft, itl;

  void set_kv_events(const KvEventCounts& counts) {
    const std::lock_guard lock(mutex);
    if (kv_events_published == nullptr) {
      const std::string name = "minfer:kv_event_batches_total";
      const std::string help = "Batches of KV cache events, one a step that changed the prefix cache.";
      kv_events_published = &counter(name, help, {{"outcome", "published"}});
      kv_events_dropped = &counter(name, help, {{"outcome", "dropped"}});
      kv_events_queued = &gauge("minfer:kv_event_batches_queued", "Batches that wait to be published.");
    }
    set(*kv_events_published, static_cast<double>(counts.published));
    set(*kv_events_dropped, static_cast<double>(counts.dropped));
    kv_events_queued->Set(static_cast<double>(counts.queued));
  }

  void set_grammars(const GrammarCache::Counts& counts) {
    const std::lock_guard lock(mutex);
    if (grammar_seconds == nullptr) {
      const std::string name = "minfer:grammars_total";
      const std::string help = "Grammars that requests asked for, by outcome.";
      grammars_compiled = &counter(name, help, {{"outcome", "compiled"}});
      grammars_reused = &counter(name, help, {{"outcome", "reused"}});
      grammars_refused = &counter(name, help, {{"outcome", "refused"}});
      grammar_seconds =
          &counter("minfer:grammar_compile_seconds_total", "Time that compiling grammars took.");
      grammar_bytes = &gauge("minfer:grammar_cache_bytes", "Memory of the grammars kept for later requests.");
    }
    set(*grammars_compiled, static_cast<double>(counts.compiled));
    set(*grammars_reused, static_cast<double>(counts.reused));
    set(*grammars_refused, static_cast<double>(counts.refused));
    set(*grammar_seconds, seconds(counts.compile_ns));
    grammar_bytes->Set(static_cast<double>(counts.bytes));
  }

  /// Sets a counter that is counted elsewhere.
  static void set(PrometheusCounter& of, double value) { of.Increment(value - of.Value()); }
};

Metrics::Metrics(const std::string& model_name, const EngineOptions& options)
    : impl_(std::make_unique<Impl>(model_name)) {
  Impl& m = *impl_;
  m.running = &m.gauge("vllm:num_requests_running", "Sequences that hold a slot in the batch.");
  m.waiting = &m.gauge("vllm:num_requests_waiting", "Sequences in the queue.");
  m.busy = &m.gauge("minfer:engine_busy",
                    "1: there is work, or a step is not counted yet; 0: no work, and every step is counted.");
  m.kv_usage = &m.gauge("vllm:kv_cache_usage_perc", "Share of the KV blocks that sequences hold; 1 is all.");
  m.gpu_cache_usage = &m.gauge("vllm:gpu_cache_usage_perc", "The same under the name of older dashboards.");
  m.connections = &m.gauge("minfer:http_connections", "Open connections.");
  m.gauge("vllm:cache_config_info", "Sizes of the KV cache, as labels.",
          {{"block_size", std::to_string(kv_block_sizes(options).block_size)},
           {"num_gpu_blocks", std::to_string(options.num_blocks)},
           {"enable_prefix_caching", options.enable_prefix_caching ? "True" : "False"}})
      .Set(1);

  m.prompt_tokens = &m.counter("vllm:prompt_tokens_total", "Prompt tokens of answered requests.");
  m.generation_tokens = &m.counter("vllm:generation_tokens_total", "Generated tokens.");
  m.preemptions =
      &m.counter("vllm:num_preemptions_total", "Sequences sent back to the queue for their blocks.");
  m.prefix_queries =
      &m.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked for in the prefix cache.");
  m.prefix_hits = &m.counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.");
  for (const FinishReason reason : {FinishReason::stop, FinishReason::length, FinishReason::cancelled,
                                    FinishReason::refused, FinishReason::error}) {
    const std::string label = reason == FinishReason::cancelled ? "abort" : std::string(name(reason));
    m.finished[static_cast<size_t>(reason)] =
        &m.counter("vllm:request_success_total", "Ended choices by reason.", {{"finished_reason", label}});
  }

  m.first_token = &m.histogram("vllm:time_to_first_token_seconds",
                               "From a request's last byte to its first token.", kFirstTokenBuckets);
  m.inter_token =
      &m.histogram("vllm:inter_token_latency_seconds", "Between two tokens of a choice.", kTokenBuckets);
  m.output_token = &m.histogram("vllm:time_per_output_token_seconds",
                                "The same under the name of older dashboards.", kTokenBuckets);
  m.request_output_token = &m.histogram("vllm:request_time_per_output_token_seconds",
                                        "Mean time between tokens of a choice.", kTokenBuckets);
  m.end_to_end = &m.histogram("vllm:e2e_request_latency_seconds",
                              "From a request's last byte to its last token.", kRequestBuckets);
  m.queue = &m.histogram("vllm:request_queue_time_seconds", "Waiting for a slot.", kRequestBuckets);
  m.inference = &m.histogram("vllm:request_inference_time_seconds", "From the first step to the last token.",
                             kRequestBuckets);
  m.prefill = &m.histogram("vllm:request_prefill_time_seconds", "From the first step to the first token.",
                           kRequestBuckets);
  m.decode =
      &m.histogram("vllm:request_decode_time_seconds", "From the first token to the last.", kRequestBuckets);
  const Buckets lengths = one_two_five(options.max_model_len);
  m.request_prompt = &m.histogram("vllm:request_prompt_tokens", "Prompt tokens of a choice.", lengths);
  m.request_generation =
      &m.histogram("vllm:request_generation_tokens", "Tokens generated for a choice.", lengths);
  m.request_longest = &m.histogram("vllm:request_max_num_generation_tokens",
                                   "Tokens of the longest choice of a request.", lengths);
  m.request_n = &m.histogram("vllm:request_params_n", "Choices asked for.", kChoiceBuckets);
  m.request_max_tokens = &m.histogram("vllm:request_params_max_tokens", "Tokens a choice may have.", lengths);
  m.step_tokens =
      &m.histogram("vllm:iteration_tokens_total", "Tokens computed in a step.", kStepTokenBuckets);

  for (const StepPhase phase : {StepPhase::prefill, StepPhase::decode, StepPhase::mixed}) {
    const auto i = static_cast<size_t>(phase);
    const Labels label{{"phase", std::string(name(phase))}};
    m.steps[i] = &m.counter("minfer:steps_total", "Steps by phase.", label);
    m.step_seconds[i] = &m.counter("minfer:step_seconds_total", "Wall time of steps by phase.", label);
  }
  for (size_t i = 0; i < kHostSpans; ++i) {
    m.host_seconds[i] =
        &m.counter("minfer:host_seconds_total", "Time of the engine's thread by span of a step.",
                   {{"span", std::string(name(static_cast<HostSpan>(i)))}});
  }
  m.device_seconds = &m.counter("minfer:device_seconds_total", "Time of steps that ops cover.");
  m.graph_steps = &m.counter("minfer:graph_steps_total", "Steps replayed as a CUDA graph.");
  m.constrained_rows =
      &m.counter("minfer:constrained_rows_total", "Tokens drawn among those that a grammar allows.");
  m.forced_tokens = &m.counter("minfer:forced_tokens_total", "Generated tokens that a grammar forced.");
  m.drafts = &m.counter("vllm:spec_decode_num_drafts_total",
                        "Times that a sequence brought draft tokens to a step.");
  m.draft_tokens = &m.counter("vllm:spec_decode_num_draft_tokens_total", "Draft tokens that were checked.");
  m.accepted_tokens =
      &m.counter("vllm:spec_decode_num_accepted_tokens_total", "Draft tokens that turned out right.");
  m.request_acceptance =
      &m.histogram("minfer:request_draft_acceptance", "Share of a request's draft tokens that was right.",
                   {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0});
  m.request_tokens_per_step =
      &m.histogram("minfer:request_tokens_per_step",
                   "Tokens that a request with draft tokens got in a decoding step (without them: 1).",
                   {1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 12.0});
}

Metrics::~Metrics() = default;

void Metrics::count_request(int32_t n, int32_t max_tokens) {
  impl_->request_n->Observe(n);
  impl_->request_max_tokens->Observe(max_tokens);
}

void Metrics::count_answer(int32_t longest_choice) {
  impl_->request_longest->Observe(longest_choice);
}

void Metrics::count_output(const RequestOutput& output, TokenTimes& times) {
  Impl& m = *impl_;
  auto num_tokens = static_cast<int64_t>(output.tokens.size());
  m.generation_tokens->Increment(static_cast<double>(num_tokens));
  // A prompt that is only scored has no first token.
  if (times.last_token_ns == 0 && (num_tokens > 0 || output.finish == FinishReason::length)) {
    m.prompt_tokens->Increment(output.prompt_tokens);
    m.prefix_queries->Increment(output.prompt_tokens);
    m.prefix_hits->Increment(output.cached_tokens);
  }
  if (num_tokens > 0) {
    if (times.last_token_ns == 0) {
      const double ttft = seconds(output.first_token_ns - times.arrival_ns);
      m.first_token->Observe(ttft);
      m.ttft.add(ttft);
      times.last_token_ns = output.first_token_ns;
      --num_tokens;
    }
    for (int64_t i = 0; i < num_tokens; ++i) {
      const double itl =
          seconds(output.last_token_ns - times.last_token_ns) / static_cast<double>(num_tokens);
      m.inter_token->Observe(itl);
      m.output_token->Observe(itl);
      m.itl.add(itl);
    }
    times.last_token_ns = output.last_token_ns;
  }
  if (!output.finish) return;
  m.finished[static_cast<size_t>(*output.finish)]->Increment();
  if (output.output_tokens == 0) return;
  m.end_to_end->Observe(seconds(output.last_token_ns - times.arrival_ns));
  m.queue->Observe(seconds(output.first_scheduled_ns - output.arrival_ns));
  m.inference->Observe(seconds(output.last_token_ns - output.first_scheduled_ns));
  m.prefill->Observe(seconds(output.first_token_ns - output.first_scheduled_ns));
  m.decode->Observe(seconds(output.last_token_ns - output.first_token_ns));
  m.request_prompt->Observe(output.prompt_tokens);
  m.request_generation->Observe(output.output_tokens);
  if (const SpeculationCounts& drafted = output.drafted; drafted.draft_tokens > 0) {
    m.request_acceptance->Observe(static_cast<double>(drafted.accepted_tokens) /
                                  static_cast<double>(drafted.draft_tokens));
    const auto steps = std::max<int64_t>(1, output.output_tokens - drafted.accepted_tokens);
    m.request_tokens_per_step->Observe(static_cast<double>(output.output_tokens) /
                                       static_cast<double>(steps));
  }
  if (output.output_tokens > 1) {
    m.request_output_token->Observe(seconds(output.last_token_ns - output.first_token_ns) /
                                    (output.output_tokens - 1));
  }
}

void Metrics::count_response(int status) {
  const std::lock_guard lock(impl_->mutex);
  PrometheusCounter*& counter = impl_->responses[status];
  if (counter == nullptr) {
    counter = &impl_->counter("minfer:http_responses_total",
                              "Responses by status; 0: the client left before the response.",
                              {{"status", std::to_string(status)}});
  }
  counter->Increment();
}

void Metrics::count_step(const StepRecord& record) {
  Impl& m = *impl_;
  const auto phase = static_cast<size_t>(record.batch.phase());
  m.steps[phase]->Increment();
  m.step_seconds[phase]->Increment(seconds(record.wall_ns()));
  for (size_t i = 0; i < kHostSpans; ++i)
    m.host_seconds[i]->Increment(seconds(record.host_ns[i]));
  m.step_tokens->Observe(record.batch.shape.tokens());
  m.preemptions->Increment(record.batch.preempted);
  if (!record.stamps.ops.empty()) {
    m.device_seconds->Increment(seconds(record.stamps.end_ns - record.stamps.ops.front().begin_ns));
  }
  if (record.batch.graph_batch > 0) m.graph_steps->Increment();
  m.constrained_rows->Increment(record.batch.constrained_rows);
  m.forced_tokens->Increment(record.batch.forced_tokens);
  m.drafts->Increment(record.batch.drafts);
  m.draft_tokens->Increment(record.batch.draft_tokens);
  m.accepted_tokens->Increment(record.batch.accepted_tokens);
}

RecentLatency Metrics::recent_ttft() const {
  return impl_->ttft.percentiles();
}

RecentLatency Metrics::recent_itl() const {
  return impl_->itl.percentiles();
}

uint64_t Metrics::num_generated_tokens() const {
  return static_cast<uint64_t>(impl_->generation_tokens->Value());
}

std::string Metrics::text(const EngineStatus& status, size_t num_connections, const KvEventCounts* kv_events,
                          const GrammarCache::Counts* grammars) {
  if (kv_events != nullptr) impl_->set_kv_events(*kv_events);
  if (grammars != nullptr) impl_->set_grammars(*grammars);
  impl_->running->Set(status.running);
  impl_->waiting->Set(status.waiting);
  impl_->busy->Set(status.busy ? 1.0 : 0.0);
  const double kv_usage = status.kv_blocks_total > 0 ? static_cast<double>(status.kv_blocks_used) /
                                                           static_cast<double>(status.kv_blocks_total)
                                                     : 0.0;
  impl_->kv_usage->Set(kv_usage);
  impl_->gpu_cache_usage->Set(kv_usage);
  impl_->connections->Set(static_cast<double>(num_connections));
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, impl_->registry.Collect());
  return text.str();
}

}  // namespace minfer
