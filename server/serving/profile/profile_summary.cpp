#include "server/serving/profile/profile_summary.h"

#include <string_view>
#include <utility>

#include "profiling/json/lines.h"
#include "profiling/page/page_json.h"
#include "profiling/report/report.h"

namespace minfer {
namespace {

constexpr int64_t kThroughputWindow_ns = 5'000'000'000;

/// All kernel launches so far.
std::vector<KernelLaunch> launches_of(const ProfileHeader& header) {
  return header.launches == nullptr ? std::vector<KernelLaunch>() : header.launches->from(0);
}

void write_launches(JsonText& json, const ProfileHeader& header) {
  json.key("launches").open('[');
  int32_t index = 0;
  for (const KernelLaunch& launch : launches_of(header))
    write_launch(json, index++, launch);
  json.close(']');
}

void write_percentiles(JsonText& json, std::string_view name, const RecentLatency& latency) {
  json.key(name).open('{').field("p50", latency.p50, 6).field("p90", latency.p90, 6);
  json.field("p99", latency.p99, 6).close('}');
}

/// The members of /profile/summary but for its report.
void write_serving_state(JsonText& json, const LiveProfile& profile, const ProfileSources& sources) {
  const ProfileHeader& header = profile.header();
  json.field("version", header.version).field("model", header.model);
  json.field("served_model_name", sources.served_model_name);
  json.field("backend", header.backend).field("device", header.device);
  json.field("threads", header.threads).key("ceilings").open('{');
  json.field("read_gbps", header.ceilings.read_gbps).field("gflops", header.ceilings.gflops);
  json.field("fp8_gflops", header.ceilings.fp8_gflops);
  json.field("text", header.ceilings.known() ? ceilings_text(header) : "not measured").close('}');

  const EngineStatus status = sources.engine_service.status();
  json.key("engine").open('{').field("running", status.running).field("waiting", status.waiting);
  json.field("kv_blocks_used", status.kv_blocks_used);
  json.field("kv_blocks_total", status.kv_blocks_total).close('}');

  const Throughput recent = throughput(profile.last(static_cast<size_t>(-1)), now_ns(), kThroughputWindow_ns);
  json.key("throughput").open('{').field("window_s", recent.window_s);
  json.field("steps_per_s", recent.steps_per_s).field("prompt_tokens_per_s", recent.prompt_tokens_per_s);
  json.field("generated_tokens_per_s", recent.generated_tokens_per_s).close('}');
  json.field("generated_tokens", sources.metrics.num_generated_tokens()).key("latency_s").open('{');
  write_percentiles(json, "ttft", sources.metrics.recent_ttft());
  write_percentiles(json, "itl", sources.metrics.recent_itl());
  json.close('}').field("dropped", sources.engine.recorder().dropped());
}

/// The sums of the last `count` steps on all ranks, of windows of counters,
/// and of the requests that ended since the first of these steps began. There is a step.
ReportData live_report(const LiveProfile& profile, size_t count, const ProfileSources& sources) {
  ReportSums sums({}, ReportOptions().slowest);
  sums.header(profile.header());
  for (KernelLaunch& launch : launches_of(profile.header()))
    sums.launch(std::move(launch));
  const std::span<const StepSummary> steps = profile.last(count);
  const int64_t begin_ns = steps.front().start_ns;
  for (const StepSummary& step : steps)
    sums.add(step);
  for (const RankStep& step : sources.recent.rank_steps()) {
    if (step.step >= steps.front().step && step.step <= steps.back().step) sums.rank_step(step);
  }
  for (const CounterWindow& window : sources.counter_windows())
    sums.counters(window);
  for (EndedRequest& request : sources.recent.requests_since(begin_ns)) {
    request.set_client_wait_after(now_ns());
    sums.request(std::move(request));
  }
  for (const HostSample& sample : sources.engine.host_sampler().after(begin_ns))
    sums.host(sample);
  if (const DeviceSampler* devices = sources.engine.device_sampler()) {
    for (const DeviceSample& sample : devices->after(begin_ns))
      sums.device(sample);
  }
  return sums.finish({});
}

}  // namespace

std::string profile_steps_json(const LiveProfile& profile, size_t count, std::optional<int64_t> since,
                               uint64_t dropped) {
  std::string text;
  JsonText json(text);
  json.open('{').field("schema", kStepSchema);
  if (!since) {
    json.key("header");
    JsonOf<ProfileHeader>::write(json, profile.header());
    write_launches(json, profile.header());
  }
  const std::span<const StepSummary> newest = profile.last(1);
  json.field("newest", newest.empty() ? int64_t{-1} : newest.back().step).field("dropped", dropped);
  json.key("steps").open('[');
  for (const StepSummary& step : profile.last(count, since.value_or(-1)))
    JsonOf<StepSummary>::write(json, step);
  json.close(']').close('}');
  return text;
}

std::string profile_summary_json(const LiveProfile& profile, size_t count, const ProfileSources& sources) {
  std::string text;
  JsonText json(text);
  json.open('{').field("schema", "minfer.summary/1");
  write_serving_state(json, profile, sources);
  if (profile.last(1).empty()) {
    json.key("report").null().close('}');
    return text;
  }
  const ReportData data = live_report(profile, count, sources);
  json.key("report");
  text += render_report_json(data, {.top = 0});
  json.close('}');
  return text;
}

std::string PageEvents::json(const LiveProfile& profile, const ProfileSources& sources,
                             const std::vector<EndedRequest>& requests) {
  const std::span<const StepSummary> newest = profile.last(1);
  const bool is_new = !newest.empty() && newest.back().step != newest_step_;
  const size_t num_windows = sources.counter_windows().size();
  if (is_new || (newest_step_ >= 0 && num_windows != counter_windows_)) {
    const ReportData data = live_report(profile, kReportSteps, sources);
    report_.clear();
    append_page_report(report_, data);
    view_.clear();
    append_page_view(view_, data);
    newest_step_ = newest.back().step;
    counter_windows_ = num_windows;
  }
  std::string text;
  JsonText json(text);
  json.open('{').field("schema", "minfer.page/1").key("live").open('{');
  write_serving_state(json, profile, sources);
  json.close('}').key("report");
  text += report_;
  json.key("view");
  text += view_;
  json.key("strip");
  write_page_steps(json, profile.last(kSteps));
  DeviceTime device;
  for (const StepSummary& step : profile.last(static_cast<size_t>(-1)))
    device.add(step);
  json.key("requests");
  write_page_requests(json, requests, device);
  json.close('}');
  return text;
}

}  // namespace minfer
