// The document of a profile file that the page shows.
#include "profiling/page/page_profile.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "profiling/json/lines.h"
#include "profiling/report/report.h"
#include "tests/support/profiling/report_of_file.h"
#include "tests/support/profiling/sample_profile.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

EndedRequest request(int number, int64_t length_ns) {
  EndedRequest ended;
  ended.id = "request-" + std::to_string(number);
  ended.finish = "length";
  ended.arrival_ns = 1'000'000 * number;
  ended.first_scheduled_ns = ended.arrival_ns + 1'000;
  ended.first_token_ns = ended.arrival_ns + 3'000;
  ended.end_ns = ended.arrival_ns + length_ns;
  ended.prompt_tokens = 7;
  ended.output_tokens = 3;
  ended.steps = {.first = 0, .last = 2, .prefill = 1, .decode = 2};
  return ended;
}

std::string text_of_profile(const std::vector<StepSummary>& steps,
                            const std::vector<EndedRequest>& requests = {}) {
  std::string text;
  append_header_line(text, test::sample_header());
  for (const StepSummary& step : steps)
    append_line(text, step);
  for (const EndedRequest& each : requests)
    append_line(text, each);
  return text;
}

nlohmann::json document_of(const std::string& text) {
  std::istringstream stream(text);
  PageProfile page;
  const std::string note = read_profile(stream, "run", page);
  std::istringstream again(text);
  read_profile(again, "run", *page.second_reading());
  return nlohmann::json::parse(page.json("run.jsonl", note));
}

TEST(PageProfile, HoldsWhatRanksDid) {
  std::string text;
  ProfileHeader header = test::sample_header();
  header.options.emplace_back("tensor_parallel_size", "2");
  append_header_line(text, header);
  for (const StepSummary& step : test::sample_steps(4)) {
    append_line(text, step);
    for (const int32_t rank : {0, 1}) {
      append_line(text, RankStep{.step = step.step,
                                 .rank = rank,
                                 .begin_ns = step.start_ns,
                                 .end_ns = step.start_ns + 9'000,
                                 .computed_ns = 5'000 + 1'000 * rank});
    }
  }
  const nlohmann::json ranks = document_of(text).at("report").at("ranks");
  ASSERT_EQ(ranks.at("ranks").size(), 2u);
  EXPECT_EQ(ranks.at("ranks").at(1).at("steps"), 4);
  EXPECT_EQ(ranks.at("skew_us"), 1.0);
  EXPECT_TRUE(document_of(text_of_profile(test::sample_steps(4))).at("report").at("ranks").is_null());
}

TEST(PageProfile, HoldsTheReportAndTheView) {
  const std::string text = text_of_profile(test::sample_steps(9));
  const nlohmann::json page = document_of(text);
  EXPECT_EQ(page.at("schema"), "minfer.page/1");
  EXPECT_EQ(page.at("file").at("name"), "run.jsonl");
  std::istringstream stream(text);
  const ProfileFile file = read_profile(stream, "run");
  nlohmann::json report =
      nlohmann::json::parse(render_report(file, {.format = ReportFormat::json, .top = 0}));
  report.at("launches") = nlohmann::json::array();
  EXPECT_EQ(page.at("report"), report);
  EXPECT_EQ(page.at("view"),
            nlohmann::json::parse(
                render_report(file, {.format = ReportFormat::json, .view = ReportView::top_down, .top = 0})));
}

TEST(PageProfile, HoldsTheSteps) {
  const std::vector<StepSummary> steps = test::sample_steps(9);
  const nlohmann::json strip = document_of(text_of_profile(steps)).at("strip");
  ASSERT_EQ(strip.at("steps").size(), 9u);
  for (size_t i = 0; i < steps.size(); ++i) {
    const nlohmann::json& step = strip.at("steps")[i];
    EXPECT_EQ(step.at("step"), steps[i].step);
    EXPECT_NEAR(step.at("wall_us").get<double>(), steps[i].wall_us, 0.06);
    EXPECT_EQ(step.at("batch")[3], steps[i].batch.shape.decode_tokens);
    EXPECT_EQ(step.at("host_us").size(), strip.at("host").size());
    ASSERT_EQ(step.at("ops").size(), steps[i].ops.size());
    for (size_t op = 0; op < steps[i].ops.size(); ++op) {
      const nlohmann::json& found = step.at("ops")[op];
      EXPECT_EQ(strip.at("ops")[found[0].get<size_t>()], steps[i].ops[op].op);
      EXPECT_EQ(found[1], steps[i].ops[op].calls);
      EXPECT_NEAR(found[2].get<double>(), steps[i].ops[op].us, 0.006);
    }
    EXPECT_EQ(strip.at("request_ids")[step.at("requests")[0].get<size_t>()], "request-0");
  }
}

TEST(PageProfile, HoldsTheLongestRequestsByArrival) {
  std::vector<EndedRequest> requests;
  const int count = static_cast<int>(PageProfile::kMostRequests) + 50;
  for (int i = 0; i < count; ++i)
    requests.push_back(request(i, i % 2 == 0 && i < 100 ? 5'000 : 9'000));
  const nlohmann::json page = document_of(text_of_profile(test::sample_steps(3), requests));
  EXPECT_EQ(page.at("file").at("requests"), count);
  ASSERT_EQ(page.at("requests").size(), PageProfile::kMostRequests);
  EXPECT_EQ(page.at("requests")[0].at("id"), "request-1") << "the fifty short ones are left out";
  EXPECT_EQ(page.at("requests")[0].at("queue_us"), 1);
  EXPECT_EQ(page.at("requests")[0].at("prefill_us"), 2);
  EXPECT_EQ(page.at("requests")[0].at("decode_us"), 6);
  EXPECT_GT(page.at("requests")[0].at("device_us"), 0);
}

TEST(PageProfile, RequestsHaveTheirWaterfalls) {
  const std::string text =
      text_of_profile(test::sample_steps(3), {request(0, 9'000'000), request(1, 8'000'000)});
  const test::TemporaryDirectory directory;
  const std::filesystem::path path = directory.path() / "run.jsonl";
  std::ofstream(path) << text;
  const nlohmann::json told =
      nlohmann::json::parse(slow_requests_json(slow_requests(path, RequestOrder::e2e, 10)));
  const nlohmann::json page = document_of(text);
  ASSERT_EQ(told.at("slowest").size(), 2u);
  EXPECT_EQ(told.at("slowest")[0].at("known_steps"), 3);
  for (size_t i = 0; i < 2; ++i) {
    for (const char* same : {"known_steps", "waterfall", "gaps"})
      EXPECT_EQ(page.at("requests")[i].at(same), told.at("slowest")[i].at(same)) << same;
  }
}

TEST(PageProfile, ACutFileIsShownToItsLastWholeLine) {
  const std::string text = text_of_profile(test::sample_steps(9));
  const nlohmann::json page = document_of(text.substr(0, text.size() - 20));
  EXPECT_EQ(page.at("strip").at("steps").size(), 8u);
  EXPECT_EQ(page.at("file").at("note"), page.at("report").at("note"));
  EXPECT_NE(page.at("file").at("note"), "");
}

TEST(PageProfile, AProfileWithoutAStepIsAnError) {
  std::istringstream stream(text_of_profile({}));
  PageProfile page;
  read_profile(stream, "run", page);
  EXPECT_THROW(page.json("run.jsonl", {}), Error);
}

}  // namespace
}  // namespace minfer
