#pragma once

#include <optional>
#include <sstream>
#include <string>

#include "kernels/base/error.h"
#include "profiling/chrome_trace/chrome_trace.h"
#include "profiling/diff/profile_diff.h"
#include "profiling/findings/evidence.h"
#include "profiling/findings/findings_report.h"
#include "profiling/page/page_profile.h"
#include "profiling/report/report.h"

namespace minfer::test {

/// Makes every command of `minfer profile` read the text of a profile: report in all formats and views, the picture of its first step,
/// explain, diff with itself, trace, view. Returns the first error of each; empty: none had one.
inline std::string read_everywhere(const std::string& text) {
  std::string errors;
  const auto attempt = [&](auto read) {
    try {
      read();
    } catch (const Error& error) {
      errors += std::string(error.what()) + '\n';
    }
  };
  const auto take = [&](ProfileVisitor& visitor) {
    std::istringstream stream(text);
    return read_profile(stream, "run.jsonl", visitor);
  };
  attempt([&] {
    ReportSums sums({}, 5);
    std::string note = take(sums);
    const ReportData data = sums.finish(std::move(note));
    for (const ReportView view : {ReportView::flat, ReportView::top_down, ReportView::bottom_up}) {
      for (const ReportFormat format :
           {ReportFormat::table, ReportFormat::json, ReportFormat::csv, ReportFormat::md})
        attempt([&] { render_report(data, {.format = format, .view = view}); });
    }
  });
  attempt([&] {
    Evidence reader;
    take(reader);
    const Diagnosis diagnosis = diagnose(reader);
    findings_text(diagnosis, false);
    findings_markdown(diagnosis);
    std::string json_text;
    JsonText json(json_text);
    write_findings(json, diagnosis);
  });
  attempt([&] {
    DiffSums sums;
    take(sums);
    const ProfileDiff diff = diff_of(sums, sums);
    for (const DiffFormat format : {DiffFormat::table, DiffFormat::json, DiffFormat::md})
      render_diff(diff, {.a = "a", .b = "b"}, format);
  });
  attempt([&] {
    std::istringstream stream(text);
    const ProfileFile file = read_profile(stream, "run.jsonl");
    if (!file.steps.empty()) render_step(file.steps.front(), file.header, false);
    write_chrome_trace(file, {}, [](std::string_view) {});
  });
  attempt([&] {
    PageProfile page;
    std::string note = take(page);
    page.json("run.jsonl", std::move(note));
  });
  return errors;
}

}  // namespace minfer::test
