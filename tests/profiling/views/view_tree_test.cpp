#include "profiling/report/view_tree.h"

#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "profiling/text/table.h"
#include "tests/support/profiling/report_of_file.h"
#include "tests/support/profiling/sample_profile.h"

namespace minfer {
namespace {

/// Ten decode steps: qkv launches one kernel, attention_decode two.
ProfileFile viewed_file() {
  ProfileFile file;
  file.header = test::sample_header();
  file.launches = {{.kernel = "row_product", .path = {}},
                   {.kernel = "split_attention", .path = {}},
                   {.kernel = "merge_splits", .path = {}}};
  for (int64_t number = 0; number < 10; ++number) {
    StepSummary& step = file.steps.emplace_back();
    step.step = number;
    step.batch.shape.decode_tokens = 4;
    step.ops.push_back(
        {.op = "qkv", .calls = 2, .us = 60.0, .bytes = 6'000'000, .floor_us = 30.0, .launches = {0}});
    step.ops.push_back({.op = "attention_decode", .calls = 2, .us = 40.0, .launches = {1, 2}});
    step.gpu_us = 100.0;
    step.wall_us = 110.0;
    step.requests = {number < 5 ? "early" : "late"};
  }
  return file;
}

KernelLine traced_kernel(int64_t step, std::string op, std::string kernel, double own_us) {
  return {.step = step,
          .op = std::move(op),
          .layer = 0,
          .phase = StepPhase::decode,
          .kernel = std::move(kernel),
          .own_us = own_us};
}

ReportData viewed_data(const ProfileFile& file, StepFilter filter = {}) {
  return report_data(file, std::move(filter), 5);
}

/// "decode(qkv(row_product),attention_decode(...))".
std::string outline(const std::vector<ViewNode>& nodes) {
  std::string text;
  for (const ViewNode& node : nodes) {
    text += (text.empty() ? "" : ",") + node.name;
    if (!node.children.empty()) text += "(" + outline(node.children) + ")";
  }
  return text;
}

TEST(ViewTree, TopDownByTheLaunchTable) {
  const ReportData data = viewed_data(viewed_file());
  const std::vector<ViewNode> nodes = top_down(data, {});
  EXPECT_EQ(outline(nodes), "decode(qkv(row_product),attention_decode(merge_splits,split_attention))");
  EXPECT_DOUBLE_EQ(nodes[0].us, 1'000.0);
  const ViewNode& qkv = nodes[0].children[0];
  EXPECT_EQ(qkv.calls, 20);
  EXPECT_DOUBLE_EQ(qkv.call_us, 30.0);
  EXPECT_DOUBLE_EQ(qkv.roofline(), 0.5);
  EXPECT_DOUBLE_EQ(qkv.children[0].us, 600.0) << "the only kernel of its op";
  EXPECT_LT(nodes[0].children[1].children[0].us, 0.0) << "one of two: not known";
  EXPECT_NE(render_view(data, {.view = ReportView::top_down}).find("time is known by op"), std::string::npos);
}

TEST(ViewTree, TracedKernelsHaveTimesOfTheirOwn) {
  ProfileFile file = viewed_file();
  file.kernels = {traced_kernel(3, "attention_decode", "split_attention", 30.0),
                  traced_kernel(3, "attention_decode", "merge_splits", 10.0),
                  traced_kernel(3, "qkv", "row_product", 55.0),
                  traced_kernel(99, "qkv", "row_product", 1e6)};  // of no step
  const ReportData data = viewed_data(file);
  const std::vector<ViewNode> kernels = bottom_up(data, {});
  EXPECT_EQ(outline(kernels),
            "row_product(qkv (decode)),split_attention(attention_decode (decode)),"
            "merge_splits(attention_decode (decode))");
  EXPECT_DOUBLE_EQ(kernels[0].us, 600.0);
  EXPECT_DOUBLE_EQ(kernels[0].call_us, 55.0);
  EXPECT_DOUBLE_EQ(kernels[1].us, 300.0) << "three quarters of the op's 400";
  EXPECT_EQ(kernels[1].calls, 1);
}

TEST(ViewTree, LayersAreGrouped) {
  EXPECT_EQ(layer_group(-1, 32).text(), "outside the layers");
  EXPECT_EQ(layer_group(9, 32).text(), "layers 8 to 15");
  EXPECT_EQ(layer_group(31, 30).text(), "layers 24 to 29");
  EXPECT_EQ(layer_group(1, 2).text(), "layer 1");
  ProfileFile file = viewed_file();
  for (StepSummary& step : file.steps)
    step.layers = {{0, "qkv", StepPhase::decode, 20.0}, {1, "qkv", StepPhase::decode, 40.0}};
  const std::vector<ViewNode> nodes = top_down(viewed_data(file), {});
  EXPECT_EQ(outline(nodes), "decode(layer 1(qkv(row_product)),layer 0(qkv(row_product)))");
  EXPECT_DOUBLE_EQ(nodes[0].children[0].us, 400.0);
}

TEST(ViewTree, FiltersAndOrder) {
  const ReportData data = viewed_data(viewed_file());
  EXPECT_EQ(outline(top_down(data, {.sort = ReportSort::name})),
            "decode(attention_decode(merge_splits,split_attention),qkv(row_product))");
  EXPECT_EQ(outline(top_down(data, {.op = "qkv"})), "decode(qkv(row_product))");
  EXPECT_EQ(outline(top_down(data, {.top = 1})), "decode(qkv(row_product))");
  EXPECT_THROW(render_view(data, {.view = ReportView::top_down, .op = "nothing"}), Error);
  EXPECT_DOUBLE_EQ(top_down(viewed_data(viewed_file(), {.steps = std::pair{2, 4}}), {})[0].us, 300.0);
  EXPECT_DOUBLE_EQ(top_down(viewed_data(viewed_file(), {.request = "late"}), {})[0].us, 500.0);
  const ProfileFile file = viewed_file();
  EXPECT_THROW(render_report(file, {.filter = {.request = "nobody"}}), Error);
}

TEST(ViewTree, EveryFormat) {
  ProfileFile file = viewed_file();
  file.launches[0].kernel =
      "void a_kernel_of_a_library<with, many, template, arguments, that, go, on, and, on>(int)";
  const ReportData data = viewed_data(file);
  for (const ReportView view : {ReportView::top_down, ReportView::bottom_up}) {
    std::istringstream lines(render_view(data, {.view = view}));
    for (std::string line; std::getline(lines, line);)
      EXPECT_LE(display_width(line), 80u) << line;
    const nlohmann::json json =
        nlohmann::json::parse(render_view(data, {.format = ReportFormat::json, .view = view}));
    EXPECT_EQ(json["view"], name(view));
    EXPECT_EQ(json["kernel_times"], "by op");
    EXPECT_FALSE(json["rows"].empty());
  }
  const std::string csv = render_view(data, {.format = ReportFormat::csv, .view = ReportView::top_down});
  EXPECT_NE(csv.find("decode > qkv,op,60.0,0.600,20,30.0,100,50\n"), std::string::npos) << csv;
  EXPECT_NE(render_view(data, {.format = ReportFormat::md, .view = ReportView::bottom_up})
                .find("| split_attention |"),
            std::string::npos);
}

}  // namespace
}  // namespace minfer
