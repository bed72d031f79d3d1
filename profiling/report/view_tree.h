#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "profiling/report/report.h"

namespace minfer {

/// A row of a view, with the rows under it.
struct ViewNode {
  std::string name;
  std::string_view level;  ///< kind of row: "phase", "layers", "op", "kernel" or "caller"
  double us = -1.0;        ///< time in all steps; negative: not known
  int64_t calls = -1;      ///< -1: not known
  double call_us = -1.0;   ///< negative: not known
  double bytes = 0.0;      ///< least bytes moved; 0: not known
  double floor_us = 0.0;   ///< by the roofline; 0: not known
  std::vector<ViewNode> children = {};

  double gbps() const { return us > 0.0 ? bytes / us * 1e-3 : 0.0; }
  double roofline() const { return us > 0.0 ? floor_us / us : 0.0; }
};

/// Phase > group of layers (with detail by layer) > op > kernel.
std::vector<ViewNode> top_down(const ReportData& data, const ReportOptions& options);
/// Kernel > the ops that call it, with their phase.
std::vector<ViewNode> bottom_up(const ReportData& data, const ReportOptions& options);

/// Either view in the requested format; text is at most 80 columns wide. Throws Error if the view is empty.
std::string render_view(const ReportData& data, const ReportOptions& options);

}  // namespace minfer
