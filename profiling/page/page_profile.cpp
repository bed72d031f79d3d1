#include "profiling/page/page_profile.h"

#include <algorithm>
#include <utility>

#include "kernels/base/error.h"
#include "profiling/page/page_json.h"
#include "profiling/report/report.h"

namespace minfer {
PageProfile::PageProfile() : ReportSums({}, ReportOptions().slowest) {}

void PageProfile::step(StepSummary& step) {
  add(step);
  device_.add(step);
  step.layers.clear();  // the page has them in its sums alone
  steps_.add(step);
}

void PageProfile::request(EndedRequest request) {
  requests_.request(request);
  ReportSums::request(std::move(request));
}

std::unique_ptr<ProfileVisitor> PageProfile::second_reading() {
  waterfalls_ = requests_.slowest().slowest;
  std::ranges::stable_sort(waterfalls_, {},
                           [](const RequestWaterfall& sum) { return sum.request.arrival_ns; });
  return waterfall_sums(waterfalls_);
}

std::string PageProfile::json(const std::string& name, std::string note) {
  const ReportData data = finish(std::move(note));
  if (data.recorded == 0) fail("the profile holds no step{}", data.note.empty() ? "" : ": " + data.note);
  const std::vector<StepSummary> steps = steps_.steps();
  std::string text;
  JsonText json(text);
  json.open('{').field("schema", std::string_view("minfer.page/1")).key("file").open('{');
  json.field("name", std::string_view(name)).field("note", std::string_view(data.note));
  json.field("backend", std::string_view(data.header.backend))
      .field("steps_of_bucket", steps_.steps_of_bucket());
  json.field("ceilings",
             std::string_view(data.header.ceilings.known() ? ceilings_text(data.header) : "not measured"));
  json.field("requests", requests_.seen()).close('}').key("report");
  append_page_report(text, data);
  json.key("view");
  append_page_view(text, data);
  json.key("strip");
  write_page_steps(json, steps);
  json.key("requests");
  std::vector<EndedRequest> requests;
  for (const RequestWaterfall& sum : waterfalls_)
    requests.push_back(sum.request);
  write_page_requests(json, requests, device_, waterfalls_);
  json.close('}');
  return text;
}

}  // namespace minfer
