// A profile file of anything: reading it, the report on it in every view and its comparison with itself neither crash nor take more
// memory than the file gives reason for; what is wrong is said by an Error.

#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>

#include "kernels/error.h"
#include "profiling/diff/profile_diff.h"
#include "profiling/report/report.h"

namespace minfer {
namespace {

void report_in_every_view(const std::string& text) {
  for (const ReportView view : {ReportView::flat, ReportView::top_down, ReportView::bottom_up}) {
    std::istringstream stream(text);
    ReportSums sums({}, 5);
    std::string note = read_profile(stream, "fuzz", sums);
    render_report(sums.finish(std::move(note)), {.format = ReportFormat::json, .view = view});
  }
}

void compare_with_itself(const std::string& text) {
  std::istringstream stream(text);
  DiffSums sums;
  read_profile(stream, "fuzz", sums);
  render_diff(diff_of(sums, sums), {.a = "a", .b = "b"}, DiffFormat::table);
}

}  // namespace
}  // namespace minfer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    minfer::report_in_every_view(text);
  } catch (const minfer::Error&) {
  }
  try {
    minfer::compare_with_itself(text);
  } catch (const minfer::Error&) {
  }
  return 0;
}
