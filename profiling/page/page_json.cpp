#include "profiling/page/page_json.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "profiling/report/report.h"
#include "profiling/report/view_tree.h"

namespace minfer {
namespace {

/// Numbers texts in the order in which they come.
class Names {
 public:
  int32_t index(std::string_view name) {
    const auto [found, is_new] = indices_.try_emplace(name, static_cast<int32_t>(names_.size()));
    if (is_new) names_.push_back(name);
    return found->second;
  }
  void write(JsonText& json) const {
    json.open('[');
    for (const std::string_view name : names_)
      json.value(name);
    json.close(']');
  }

 private:
  std::unordered_map<std::string_view, int32_t> indices_;
  std::vector<std::string_view> names_;
};

void write_numbers(JsonText& json, std::string_view key, std::initializer_list<int64_t> numbers) {
  json.key(key).open('[');
  for (const int64_t number : numbers)
    json.value(number);
  json.close(']');
}

void write_step_of_page(JsonText& json, const StepSummary& step, Names& ops, Names& ids) {
  const StepBatch& batch = step.batch;
  json.open('{').field("step", step.step).field("start_ns", step.start_ns).field("phase", name(step.phase()));
  json.field("wall_us", step.wall_us, 1).field("gpu_us", step.gpu_us, 1);
  json.field("attributed", step.attributed, 4).field("prefill_us", step.prefill.us, 1);
  json.field("decode_us", step.decode.us, 1).field("graph", batch.graph_batch);
  if (batch.predicted_ns > 0) json.field("predicted_us", us_of(batch.predicted_ns), 1);
  write_numbers(json, "batch",
                {batch.shape.prefill_sequences, batch.shape.decode_sequences, batch.shape.prefill_tokens,
                 batch.shape.decode_tokens, batch.padded_tokens, batch.prefix_hit_tokens, batch.preempted,
                 batch.waiting, batch.constrained_rows, batch.forced_tokens, batch.prefill_budget,
                 batch.draft_tokens, batch.accepted_tokens, batch.disk.hit_tokens, batch.disk.written});
  write_numbers(json, "kv", {batch.kv_blocks_used, batch.kv_blocks_total});
  json.key("host_us").open('[');
  for (const double us : step.host_us)
    json.value(us, 1);
  json.close(']').key("ops").open('[');
  for (const OpSummary& op : step.ops) {
    json.open('[').value(ops.index(op.op)).value(op.calls).value(op.us, 2).value(op.gbps(), 1);
    json.value(op.roofline(), 3).value(op.idle_us, 1).close(']');
  }
  json.close(']').key("requests").open('[');
  for (size_t i = 0; i < std::min(step.requests.size(), kMostRequestsOfStep); ++i)
    json.value(ids.index(step.requests[i]));
  json.close(']').close('}');
}

}  // namespace

void write_page_steps(JsonText& json, std::span<const StepSummary> steps) {
  Names ops, ids;
  json.open('{').key("steps").open('[');
  for (const StepSummary& step : steps)
    write_step_of_page(json, step, ops, ids);
  json.close(']').key("ops");
  ops.write(json);
  json.key("request_ids");
  ids.write(json);
  json.key("host").open('[');
  for (size_t i = 0; i < kHostSpans; ++i)
    json.value(name(static_cast<HostSpan>(i)));
  json.close(']').close('}');
}

void write_page_requests(JsonText& json, std::span<const EndedRequest> requests, const DeviceTime& device,
                         std::span<const RequestWaterfall> waterfalls) {
  json.open('[');
  for (size_t i = 0; i < requests.size(); ++i) {
    const EndedRequest& request = requests[i];
    const DeviceTime::Part part = device.of(request.steps);
    json.open('{').field("id", request.id).field("finish", request.finish);
    json.field("arrival_ns", request.arrival_ns).field("queue_us", us_of(request.queue_ns()), 0);
    json.field("prefill_us", us_of(request.prefill_ns()), 0)
        .field("decode_us", us_of(request.decode_ns()), 0);
    json.field("prompt_tokens", request.prompt_tokens).field("cached_tokens", request.cached_tokens);
    json.field("output_tokens", request.output_tokens).field("preemptions", request.preemptions);
    if (request.drafts > 0) {
      write_numbers(json, "drafts", {request.drafts, request.draft_tokens, request.accepted_tokens});
    }
    json.field("first_step", request.steps.first).field("last_step", request.steps.last);
    json.field("prefill_steps", request.steps.prefill).field("decode_steps", request.steps.decode);
    if (part.us >= 0.0) json.field("device_us", part.us, 0).field("device_share", part.share, 4);
    if (!waterfalls.empty()) write_waterfall(json, waterfalls[i]);
    json.close('}');
  }
  json.close(']');
}

void append_page_report(std::string& out, const ReportData& data) {
  out += render_report_json(data, {.top = 0, .indent = -1, .launches = false});
  out.pop_back();
}

void append_page_view(std::string& out, const ReportData& data) {
  if (data.sum.ops.empty()) {
    out += "null";
    return;
  }
  out +=
      render_view(data, {.format = ReportFormat::json, .view = ReportView::top_down, .top = 0, .indent = -1});
  out.pop_back();
}

}  // namespace minfer
