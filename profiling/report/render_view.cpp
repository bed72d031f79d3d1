#include <fmt/format.h>

#include "kernels/base/error.h"
#include "profiling/json/member_json.h"
#include "profiling/report/view_tree.h"
#include "profiling/text/table.h"

namespace minfer {
namespace {

constexpr size_t kIndent = 2;

std::vector<std::string> cells_of(const ViewNode& node, const std::string& name, double all_us) {
  const auto known = [](double value) { return value < 0.0 ? std::string("-") : three_digits(value); };
  return {name,
          node.us < 0.0 ? "-" : percent(node.us, all_us),
          known(node.us * 1e-3),
          node.calls < 0 ? "-" : std::to_string(node.calls),
          known(node.call_us),
          node.bytes > 0.0 ? three_digits(node.gbps()) : "-",
          node.floor_us > 0.0 ? fmt::format("{:.0f}", 100.0 * node.roofline()) : "-"};
}

void append_rows(Table& table, const std::vector<ViewNode>& nodes, double all_us, size_t depth) {
  for (const ViewNode& node : nodes) {
    table.rows.push_back(cells_of(node, std::string(kIndent * depth, ' ') + node.name, all_us));
    append_rows(table, node.children, all_us, depth + 1);
  }
}

/// One row for each node, with what stands above it: nothing is hidden in blanks.
void append_csv_rows(Table& table, const std::vector<ViewNode>& nodes, const std::string& path,
                     double all_us) {
  for (const ViewNode& node : nodes) {
    const std::string name = path.empty() ? node.name : path + " > " + node.name;
    std::vector<std::string>& row = table.rows.emplace_back(cells_of(node, name, all_us));
    row.insert(row.begin() + 1, std::string(node.level));
    append_csv_rows(table, node.children, name, all_us);
  }
}

/// Unknown values are null.
OrderedJson json_of(const std::vector<ViewNode>& nodes, double all_us) {
  const auto known = [](double value) { return value < 0.0 ? OrderedJson() : OrderedJson(value); };
  OrderedJson rows = OrderedJson::array();
  for (const ViewNode& node : nodes) {
    rows.push_back(
        {{"name", node.name},
         {"level", node.level},
         {"us", known(node.us)},
         {"time_share", node.us < 0.0 || all_us <= 0.0 ? OrderedJson() : OrderedJson(node.us / all_us)},
         {"calls", node.calls < 0 ? OrderedJson() : OrderedJson(node.calls)},
         {"call_us", known(node.call_us)},
         {"gbps", node.bytes > 0.0 ? OrderedJson(node.gbps()) : OrderedJson()},
         {"roofline", node.floor_us > 0.0 ? OrderedJson(node.roofline()) : OrderedJson()},
         {"children", json_of(node.children, all_us)}});
  }
  return rows;
}

/// How kernels come by their times.
std::string kernels_sentence(const ReportData& data) {
  if (!data.views.kernels().empty())
    return "kernels: calls and us/call are their own in traced steps (tier 1); ms is their share of the op's "
           "time in all steps";
  if (data.launches.empty()) return "no kernels: no launches were recorded";
  return "kernels come from the launch table (tier 0): time is known by op, so a kernel has a time only if "
         "its op launches no other; --profile-range traces each kernel";
}

Table view_table(const ReportData& data, const std::vector<ViewNode>& nodes, bool is_top_down) {
  const bool by_layer = !data.views.layers().empty();
  Table table{
      is_top_down ? fmt::format("Top-down: phase > {}op > kernel", by_layer ? "layers > " : "")
                  : std::string("Bottom-up: kernel > ops that call it (phase)"),
      {is_top_down ? "phase, op, kernel" : "kernel, op", "time%", "ms", "calls", "us/call", "GB/s", "roof%"}};
  append_rows(table, nodes, data.sum.all.gpu_us, 0);
  return table;
}

}  // namespace

std::string render_view(const ReportData& data, const ReportOptions& options) {
  const bool is_top_down = options.view == ReportView::top_down;
  const std::vector<ViewNode> nodes = is_top_down ? top_down(data, options) : bottom_up(data, options);
  if (nodes.empty() && !options.op.empty()) fail("the steps have no op \"{}\"", options.op);
  if (nodes.empty()) fail("no kernel is known: the profile has neither launches nor traced kernels");
  const double all_us = data.sum.all.gpu_us;
  const std::string about =
      fmt::format("{} {}; {}", data.sum.all.steps, data.filter.text(), kernels_sentence(data));
  switch (options.format) {
    case ReportFormat::json: {
      const OrderedJson view{{"schema", "minfer.view/1"},
                             {"view", name(options.view)},
                             {"steps", data.sum.all.steps},
                             {"gpu_us", all_us},
                             {"kernel_times", data.views.kernels().empty() ? "by op" : "traced"},
                             {"rows", json_of(nodes, all_us)}};
      return view.dump(options.indent, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
    }
    case ReportFormat::csv: {
      Table table = view_table(data, {}, is_top_down);
      append_csv_rows(table, nodes, {}, all_us);
      table.columns.insert(table.columns.begin() + 1, "level");
      return csv_table(table);
    }
    case ReportFormat::md:
      return markdown_table(view_table(data, nodes, is_top_down)) + "\n- " + about + "\n";
    case ReportFormat::table:
      break;
  }
  Table table = view_table(data, nodes, is_top_down);
  table.title = bold_if(options.colour, table.title);
  return text_table(table, kTextColumns) + "\n" + wrapped(about, kTextColumns) + "\n";
}

}  // namespace minfer
