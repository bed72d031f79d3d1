#include "server/serving/profile/page_events.h"

#include <string_view>

#include "profiling/page/page_json.h"

namespace minfer {

std::string PageEvents::json(const LiveProfile& profile, const ServingState& state,
                             const std::vector<EndedRequest>& requests) {
  const std::span<const StepSummary> newest = profile.last(1);
  const bool is_new = !newest.empty() && newest.back().step != newest_step_;
  if (is_new || (newest_step_ >= 0 && state.counters.size() != counter_windows_)) {
    const ReportData data = live_report(profile, kReportSteps, state);
    report_.clear();
    append_page_report(report_, data);
    view_.clear();
    append_page_view(view_, data);
    newest_step_ = newest.back().step;
    counter_windows_ = state.counters.size();
  }
  std::string text;
  JsonText json(text);
  json.open('{').field("schema", std::string_view("minfer.page/1")).key("live").open('{');
  write_serving_state(json, profile, state);
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
