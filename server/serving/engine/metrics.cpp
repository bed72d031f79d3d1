#include "server/serving/engine/metrics.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <sstream>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/text_serializer.h>

#include "engine/options/sizes.h"

namespace minfer {
namespace {

using Count = prometheus::Counter;
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

/// Each function returns the metric of that name and these labels, which it registers if there is none. Any thread.
struct LabelledRegistry {
  std::shared_ptr<prometheus::Registry> registry;
  Labels labels;

  Labels with(Labels more) const {
    more.insert(labels.begin(), labels.end());
    return more;
  }
  Count& counter(const std::string& name, const std::string& help, const Labels& more = {}) const {
    return prometheus::BuildCounter().Name(name).Help(help).Register(*registry).Add(with(more));
  }
  Gauge& gauge(const std::string& name, const std::string& help, const Labels& more = {}) const {
    return prometheus::BuildGauge().Name(name).Help(help).Register(*registry).Add(with(more));
  }
  Histogram& histogram(const std::string& name, const std::string& help, const Buckets& buckets) const {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(*registry).Add(with({}), buckets);
  }
};

}  // namespace

struct Metrics::Impl : LabelledRegistry {
  Impl(const std::string& model_name, const EngineOptions& options,
       std::shared_ptr<prometheus::Registry> shared)
      : LabelledRegistry{std::move(shared), {{"model_name", model_name}, {"engine", "0"}}},
        lengths(one_two_five(options.max_model_len)) {
    gauge("vllm:cache_config_info", "Sizes of the KV cache, as labels.",
          {{"block_size", std::to_string(kv_block_sizes(options).block_size)},
           {"num_gpu_blocks", std::to_string(options.num_blocks)},
           {"enable_prefix_caching", options.enable_prefix_caching ? "True" : "False"}})
        .Set(1);
  }

  const Buckets lengths;  ///< of texts, in tokens

  Count& disk_blocks(const std::string& outcome) {
    return counter("minfer:kv_disk_blocks_total", "KV blocks to and from disk, by outcome.",
                   {{"outcome", outcome}});
  }
  /// A counter for each value of an enumeration.
  template <class Enum, size_t kValues>
  std::array<Count*, kValues> counters(const std::string& metric, const std::string& help,
                                       const std::string& label) {
    std::array<Count*, kValues> made;
    for (size_t i = 0; i < kValues; ++i) {
      const std::string value(name(static_cast<Enum>(i)));
      made[i] = &counter(metric, help, {{label, value == "cancelled" ? "abort" : value}});  // vLLM's word
    }
    return made;
  }

  Gauge& running = gauge("vllm:num_requests_running", "Sequences that hold a slot in the batch.");
  Gauge& waiting = gauge("vllm:num_requests_waiting", "Sequences in the queue.");
  Gauge& busy =
      gauge("minfer:engine_busy",
            "1: there is work, or a step is not counted yet; 0: no work, and every step is counted.");
  Gauge& kv_usage =
      gauge("vllm:kv_cache_usage_perc", "Share of the KV blocks that sequences hold; 1 is all.");
  Gauge& gpu_cache_usage = gauge("vllm:gpu_cache_usage_perc", "The same under the name of older dashboards.");

  Count& prompt_tokens = counter("vllm:prompt_tokens_total", "Prompt tokens of answered requests.");
  Count& generation_tokens = counter("vllm:generation_tokens_total", "Generated tokens.");
  Count& preemptions =
      counter("vllm:num_preemptions_total", "Sequences sent back to the queue for their blocks.");
  Count& prefix_queries =
      counter("vllm:prefix_cache_queries_total", "Prompt tokens looked for in the prefix cache.");
  Count& prefix_hits = counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.");
  const std::array<Count*, 5> finished =
      counters<FinishReason, 5>("vllm:request_success_total", "Ended choices by reason.", "finished_reason");

  Histogram& first_token = histogram("vllm:time_to_first_token_seconds",
                                     "From a request's last byte to its first token.", kFirstTokenBuckets);
  Histogram& inter_token =
      histogram("vllm:inter_token_latency_seconds", "Between two tokens of a choice.", kTokenBuckets);
  Histogram& output_token = histogram("vllm:time_per_output_token_seconds",
                                      "The same under the name of older dashboards.", kTokenBuckets);
  Histogram& request_output_token = histogram("vllm:request_time_per_output_token_seconds",
                                              "Mean time between tokens of a choice.", kTokenBuckets);
  Histogram& end_to_end = histogram("vllm:e2e_request_latency_seconds",
                                    "From a request's last byte to its last token.", kRequestBuckets);
  Histogram& queue = histogram("vllm:request_queue_time_seconds", "Waiting for a slot.", kRequestBuckets);
  Histogram& inference = histogram("vllm:request_inference_time_seconds",
                                   "From the first step to the last token.", kRequestBuckets);
  Histogram& prefill = histogram("vllm:request_prefill_time_seconds",
                                 "From the first step to the first token.", kRequestBuckets);
  Histogram& decode =
      histogram("vllm:request_decode_time_seconds", "From the first token to the last.", kRequestBuckets);
  Histogram& request_prompt = histogram("vllm:request_prompt_tokens", "Prompt tokens of a choice.", lengths);
  Histogram& request_generation =
      histogram("vllm:request_generation_tokens", "Tokens generated for a choice.", lengths);
  Histogram& request_longest = histogram("vllm:request_max_num_generation_tokens",
                                         "Tokens of the longest choice of a request.", lengths);
  Histogram& request_n = histogram("vllm:request_params_n", "Choices asked for.", {1, 2, 5, 10, 20});
  Histogram& request_max_tokens =
      histogram("vllm:request_params_max_tokens", "Tokens a choice may have.", lengths);
  Histogram& step_tokens = histogram("vllm:iteration_tokens_total", "Tokens computed in a step.",
                                     {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384});

  const std::array<Count*, 3> steps =
      counters<StepPhase, 3>("minfer:steps_total", "Steps by phase.", "phase");
  const std::array<Count*, 3> step_seconds =
      counters<StepPhase, 3>("minfer:step_seconds_total", "Wall time of steps by phase.", "phase");
  const std::array<Count*, kHostSpans> host_seconds = counters<HostSpan, kHostSpans>(
      "minfer:host_seconds_total", "Time of the engine's thread by span of a step.", "span");
  Count& device_seconds = counter("minfer:device_seconds_total", "Time of steps that ops cover.");
  Count& graph_steps = counter("minfer:graph_steps_total", "Steps replayed as a CUDA graph.");
  Count& constrained_rows =
      counter("minfer:constrained_rows_total", "Tokens drawn among those that a grammar allows.");
  Count& forced_tokens = counter("minfer:forced_tokens_total", "Generated tokens that a grammar forced.");
  Count& drafts =
      counter("vllm:spec_decode_num_drafts_total", "Times that a sequence brought draft tokens to a step.");
  Count& draft_tokens = counter("vllm:spec_decode_num_draft_tokens_total", "Draft tokens that were checked.");
  Count& accepted_tokens =
      counter("vllm:spec_decode_num_accepted_tokens_total", "Draft tokens that turned out right.");
  Count& disk_written = disk_blocks("written");
  Count& disk_read = disk_blocks("read");
  Count& disk_dropped = disk_blocks("dropped");
  Count& disk_lost = disk_blocks("lost");
  Count& disk_hits = counter("minfer:kv_disk_hit_tokens_total", "Prompt tokens in KV blocks read from disk.");
  Count& disk_seconds = counter("minfer:kv_disk_read_seconds_total", "Time to read KV blocks.");
  Histogram& request_acceptance =
      histogram("minfer:request_draft_acceptance", "Share of a request's draft tokens that was right.",
                {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0});
  Histogram& request_tokens_per_step =
      histogram("minfer:request_tokens_per_step",
                "Tokens that a request with draft tokens got in a decoding step (without them: 1).",
                {1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 12.0});

  LatencyWindow ttft, itl;
  std::mutex mutex;  ///< of set()

  /// Sets a counter that is counted elsewhere.
  void set(Count& of, double value) {
    const std::lock_guard lock(mutex);
    of.Increment(value - of.Value());
  }
};

Metrics::Metrics(const std::string& model_name, const EngineOptions& options,
                 std::shared_ptr<prometheus::Registry> registry)
    : impl_(std::make_unique<Impl>(model_name, options, std::move(registry))) {}

Metrics::~Metrics() {
  update({});  // of a model that is unloaded
}

void Metrics::count_request(int32_t n, int32_t max_tokens) {
  impl_->request_n.Observe(n);
  impl_->request_max_tokens.Observe(max_tokens);
}

void Metrics::count_answer(int32_t longest_choice) {
  impl_->request_longest.Observe(longest_choice);
}

void Metrics::count_output(const RequestOutput& output, TokenTimes& times) {
  Impl& m = *impl_;
  auto num_tokens = static_cast<int64_t>(output.tokens.size());
  m.generation_tokens.Increment(static_cast<double>(num_tokens));
  // A prompt that is only scored has no first token.
  if (times.last_token_ns == 0 && (num_tokens > 0 || output.finish == FinishReason::length)) {
    m.prompt_tokens.Increment(output.prompt_tokens);
    m.prefix_queries.Increment(output.prompt_tokens);
    m.prefix_hits.Increment(output.cached_tokens);
  }
  if (num_tokens > 0) {
    if (times.last_token_ns == 0) {
      const double ttft = seconds(output.first_token_ns - times.arrival_ns);
      m.first_token.Observe(ttft);
      m.ttft.add(ttft);
      times.last_token_ns = output.first_token_ns;
      --num_tokens;
    }
    for (int64_t i = 0; i < num_tokens; ++i) {
      const double itl =
          seconds(output.last_token_ns - times.last_token_ns) / static_cast<double>(num_tokens);
      m.inter_token.Observe(itl);
      m.output_token.Observe(itl);
      m.itl.add(itl);
    }
    times.last_token_ns = output.last_token_ns;
  }
  if (!output.finish) return;
  m.finished[static_cast<size_t>(*output.finish)]->Increment();
  if (output.output_tokens == 0) return;
  m.end_to_end.Observe(seconds(output.last_token_ns - times.arrival_ns));
  m.queue.Observe(seconds(output.first_scheduled_ns - output.arrival_ns));
  m.inference.Observe(seconds(output.last_token_ns - output.first_scheduled_ns));
  m.prefill.Observe(seconds(output.first_token_ns - output.first_scheduled_ns));
  m.decode.Observe(seconds(output.last_token_ns - output.first_token_ns));
  m.request_prompt.Observe(output.prompt_tokens);
  m.request_generation.Observe(output.output_tokens);
  if (const SpeculationCounts& drafted = output.drafted; drafted.draft_tokens > 0) {
    m.request_acceptance.Observe(static_cast<double>(drafted.accepted_tokens) /
                                 static_cast<double>(drafted.draft_tokens));
    const auto steps = std::max<int64_t>(1, output.output_tokens - drafted.accepted_tokens);
    m.request_tokens_per_step.Observe(static_cast<double>(output.output_tokens) / static_cast<double>(steps));
  }
  if (output.output_tokens > 1)
    m.request_output_token.Observe(seconds(output.last_token_ns - output.first_token_ns) /
                                   (output.output_tokens - 1));
}

void Metrics::consume(const StepRecord& record) noexcept {
  Impl& m = *impl_;
  const auto phase = static_cast<size_t>(record.batch.phase());
  m.steps[phase]->Increment();
  m.step_seconds[phase]->Increment(seconds(record.wall_ns()));
  for (size_t i = 0; i < kHostSpans; ++i)
    m.host_seconds[i]->Increment(seconds(record.host_ns[i]));
  m.step_tokens.Observe(record.batch.shape.tokens());
  m.preemptions.Increment(record.batch.preempted);
  if (!record.stamps.ops.empty())
    m.device_seconds.Increment(seconds(record.stamps.end_ns - record.stamps.ops.front().begin_ns));
  if (record.batch.graph_batch > 0) m.graph_steps.Increment();
  m.constrained_rows.Increment(record.batch.constrained_rows);
  m.forced_tokens.Increment(record.batch.forced_tokens);
  m.drafts.Increment(record.batch.drafts);
  m.draft_tokens.Increment(record.batch.draft_tokens);
  m.accepted_tokens.Increment(record.batch.accepted_tokens);
  const DiskCounts& disk = record.batch.disk;
  m.disk_written.Increment(static_cast<double>(disk.written));
  m.disk_read.Increment(static_cast<double>(disk.read));
  m.disk_dropped.Increment(static_cast<double>(disk.dropped));
  m.disk_lost.Increment(static_cast<double>(disk.lost));
  m.disk_hits.Increment(static_cast<double>(disk.hit_tokens));
  m.disk_seconds.Increment(seconds(disk.read_ns));
}

RecentLatency Metrics::recent_ttft() const {
  return impl_->ttft.percentiles();
}

RecentLatency Metrics::recent_itl() const {
  return impl_->itl.percentiles();
}

uint64_t Metrics::num_generated_tokens() const {
  return static_cast<uint64_t>(impl_->generation_tokens.Value());
}

void Metrics::update(const EngineStatus& status, const std::optional<KvEventCounts>& kv_events,
                     const std::optional<GrammarCache::Counts>& grammars) {
  Impl& m = *impl_;
  const auto set_by_outcome = [&](const char* name, const char* help, const char* outcome, uint64_t count) {
    m.set(m.counter(name, help, {{"outcome", outcome}}), static_cast<double>(count));
  };
  if (kv_events) {
    constexpr const char* kName = "minfer:kv_event_batches_total";
    constexpr const char* kHelp = "Batches of KV cache events, one a step that changed the prefix cache.";
    set_by_outcome(kName, kHelp, "published", kv_events->published);
    set_by_outcome(kName, kHelp, "dropped", kv_events->dropped);
    m.gauge("minfer:kv_event_batches_queued", "Batches that wait to be published.")
        .Set(static_cast<double>(kv_events->queued));
  }
  if (grammars) {
    constexpr const char* kName = "minfer:grammars_total";
    constexpr const char* kHelp = "Grammars that requests asked for, by outcome.";
    set_by_outcome(kName, kHelp, "compiled", grammars->compiled);
    set_by_outcome(kName, kHelp, "reused", grammars->reused);
    set_by_outcome(kName, kHelp, "refused", grammars->refused);
    m.set(m.counter("minfer:grammar_compile_seconds_total", "Time that compiling grammars took."),
          seconds(grammars->compile_ns));
    m.gauge("minfer:grammar_cache_bytes", "Memory of the grammars kept for later requests.")
        .Set(static_cast<double>(grammars->bytes));
  }
  m.running.Set(status.running);
  m.waiting.Set(status.waiting);
  m.busy.Set(status.busy ? 1.0 : 0.0);
  const double kv_usage = status.kv_blocks_total > 0 ? static_cast<double>(status.kv_blocks_used) /
                                                           static_cast<double>(status.kv_blocks_total)
                                                     : 0.0;
  m.kv_usage.Set(kv_usage);
  m.gpu_cache_usage.Set(kv_usage);
}

HttpMetrics::HttpMetrics(const std::string& model_name, std::shared_ptr<prometheus::Registry> registry)
    : registry_(std::move(registry)), labels_{{"engine", "0"}} {
  if (!model_name.empty()) labels_.emplace("model_name", model_name);
}

void HttpMetrics::count_response(int status) {
  LabelledRegistry{registry_, labels_}
      .counter("minfer:http_responses_total", "Responses by status; 0: the client left before the response.",
               {{"status", std::to_string(status)}})
      .Increment();
}

std::string HttpMetrics::text(size_t num_connections, std::span<const ListedModel> models) {
  const LabelledRegistry registry{registry_, labels_};
  registry.gauge("minfer:http_connections", "Open connections.").Set(static_cast<double>(num_connections));
  for (const ListedModel& model : models) {
    const Labels name{{"model_name", model.model->served_model_names.front()}};
    registry.gauge("minfer:model_loaded", "1: the model is loaded, 0: it is not.", name)
        .Set(model.is_loaded() ? 1 : 0);
    registry.gauge("minfer:model_requests_waiting", "Requests that wait for the model to be loaded.", name)
        .Set(static_cast<double>(model.num_waiting));
  }
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, registry_->Collect());
  return text.str();
}

}  // namespace minfer
