// The profile endpoints of a whole server with the demo model.
#include "server/serving/profile/profile_routes.h"

#include <map>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "profiling/json/json_reader.h"
#include "profiling/requests/slow_requests.h"
#include "server/commands/commands.h"
#include "tests/support/server/profile_routes_run.h"
#include "tests/support/wait.h"

namespace minfer {
namespace {

using Json = nlohmann::json;
using test::ProfileRoutesTest;
using testing::HasSubstr;

TEST_F(ProfileRoutesTest, StepsBeforeAnyRequestAreNone) {
  const Json reply = get_json("/profile/steps");
  EXPECT_EQ(reply.at("schema"), "minfer.step/2");
  EXPECT_EQ(reply.at("newest"), -1);
  EXPECT_EQ(reply.at("steps"), Json::array());
  EXPECT_EQ(reply.at("header").at("backend"), "cpu");
  EXPECT_FALSE(reply.at("header").at("ops").empty());
  const Json summary = get_json("/profile/summary");
  EXPECT_EQ(summary.at("report"), nullptr);
  EXPECT_EQ(summary.at("served_model_name"), "minfer-demo");
  EXPECT_EQ(summary.at("engine").at("kv_blocks_total"), 256);
}

TEST_F(ProfileRoutesTest, GivesTheLastStepsInTheFormOfAProfileFile) {
  complete(20);
  const Json reply = get_json("/profile/steps?last=5");
  ASSERT_EQ(reply.at("newest"), 19);
  ASSERT_EQ(reply.at("steps").size(), 5u);
  EXPECT_EQ(reply.at("steps").front().at("step"), 15);
  // The reply's parts, joined into a file, are a valid profile.
  std::string text = Json{{"schema", reply.at("schema")}, {"header", reply.at("header")}}.dump() + "\n";
  for (const Json& step : reply.at("steps"))
    text += step.dump() + "\n";
  std::istringstream stream(text);
  const ProfileFile file = read_profile(stream, "reply");
  ASSERT_EQ(file.steps.size(), 5u);
  EXPECT_EQ(file.steps.back().step, 19);
  EXPECT_EQ(file.steps.back().batch.shape.decode_tokens, 1);
  EXPECT_GT(file.steps.back().attributed, 0.0);
}

TEST_F(ProfileRoutesTest, ChoosesStepsByLastAndSince) {
  complete(12);
  EXPECT_EQ(get_json("/profile/steps").at("steps").size(), 12u);
  EXPECT_EQ(get_json("/profile/steps?last=1000000000").at("steps").size(), 12u);
  const Json newer = get_json("/profile/steps?last=3&since=9");
  ASSERT_EQ(newer.at("steps").size(), 2u);
  EXPECT_EQ(newer.at("steps")[0].at("step"), 10);
  EXPECT_FALSE(newer.contains("header")) << "who asks for newer steps has it";
  EXPECT_TRUE(get_json("/profile/steps?since=11").at("steps").empty());
  EXPECT_EQ(get_json("/profile/steps?since=-1").at("steps").size(), 12u);
}

TEST_F(ProfileRoutesTest, RefusesBadNumbersByName) {
  for (const char* value : {"0", "-1", "1.5", "x", "5x", "+5", "%20", "99999999999999999999"}) {
    expect_error(get(fmt::format("/profile/steps?last={}", value)), 400, "last: ", "last");
    expect_error(get(fmt::format("/profile/summary?last={}", value)), 400, "last: ", "last");
  }
  for (const char* value : {"-2", "1e3", "abc"})
    expect_error(get(fmt::format("/profile/steps?since={}", value)), 400, "since: ", "since");
  expect_error(get("/profile/requests?by=tpot"), 400, "by: \"tpot\", expected e2e, ttft or itl", "by");
  EXPECT_EQ(post("/profile/steps").status, 405);
}

TEST_F(ProfileRoutesTest, SummaryAddsUpTheSteps) {
  const auto begin = std::chrono::steady_clock::now();
  complete(30);
  const Json summary = get_json("/profile/summary");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const Json& report = summary.at("report");
  EXPECT_EQ(report.at("schema"), "minfer.report/1");
  EXPECT_EQ(report.at("all").at("steps"), 30);
  EXPECT_EQ(report.at("last_step"), 29);
  EXPECT_EQ(report.at("decode").at("tokens"), 29);
  EXPECT_GT(report.at("ops").size(), 10u);
  EXPECT_EQ(get_json("/profile/summary?last=10").at("report").at("first_step"), 20);
  // The sums equal those of the steps themselves.
  double wall_us = 0.0;
  const Json steps = get_json("/profile/steps");
  for (const Json& step : steps.at("steps"))
    wall_us += step.at("wall_us").get<double>();
  EXPECT_NEAR(report.at("all").at("wall_us").get<double>(), wall_us, 1.0);

  EXPECT_EQ(summary.at("generated_tokens"), 30);
  const Json& speed = summary.at("throughput");
  const double window_s = speed.at("window_s");
  const double tokens_in_window = speed.at("generated_tokens_per_s").get<double>() * window_s;
  EXPECT_LE(tokens_in_window, 30.1);
  EXPECT_GE(tokens_in_window, took.count() < window_s ? 29.9 : 0.9)
      << "a slow machine's first steps lie in front of the window";
  EXPECT_GT(summary.at("latency_s").at("ttft").at("p50"), 0.0);
  EXPECT_GT(summary.at("latency_s").at("itl").at("p99"), 0.0);
  EXPECT_EQ(summary.at("engine").at("running"), 0);
}

TEST_F(ProfileRoutesTest, AServerIsExplainedByItsSummary) {
  const std::string command =
      fmt::format("profile explain -o json --url http://127.0.0.1:{}", server_->port());
  const auto explain = [&](const std::string& arguments) {
    CLI::App app;
    add_profile_command(app);
    testing::internal::CaptureStdout();
    try {
      app.parse(command + arguments);
    } catch (...) {
      testing::internal::GetCapturedStdout();
      throw;
    }
    return Json::parse(testing::internal::GetCapturedStdout());
  };
  EXPECT_THROW(explain(""), Error) << "it has run no step";
  complete(30);
  // A reading of the machine, four times a second, changes the findings: not between both sides of each pair.
  EXPECT_TRUE(test::wait_until(
      [&] { return explain("") == get_json("/profile/summary").at("report").at("findings"); }));
  EXPECT_EQ(explain(" --last 10").at("steps"), 10);
  EXPECT_EQ(explain("").at("requests"), 1);
  complete(5);
  complete(7);
  EXPECT_EQ(explain("").at("requests"), 3) << "rules about requests have what they look at";
  EXPECT_EQ(explain(" --last 12").at("requests"), 2) << "the first one ended before";
  EXPECT_EQ(explain(" --last 6").at("requests"), 1);
}

// Listeners get the summary, with the page's additions, and do not hold up the end.
TEST_F(ProfileRoutesTest, EventsSayWhatTheSummarySays) {
  complete(30);
  RawClient client(server_->port());
  client.send(RawClient::request_text("GET", "/profile/events"));
  const std::string text = client.receive_until("}\n\n");
  EXPECT_THAT(text, HasSubstr("content-type: text/event-stream"));
  const size_t begin = text.find("data: ") + 6;
  const Json event = Json::parse(text.substr(begin, text.size() - begin));
  const Json summary = get_json("/profile/summary");
  Json report = summary.at("report"), seen = event.at("report");
  report.at("launches") = Json::array();
  for (Json* each : {&report, &seen})
    each->erase("findings");  // a reading of the machine may come between the two
  EXPECT_EQ(event.at("schema"), "minfer.page/1");
  EXPECT_EQ(seen, report);
  for (const char* same : {"model", "engine", "latency_s", "generated_tokens", "ceilings", "dropped"})
    EXPECT_EQ(event.at("live").at(same), summary.at(same)) << same;
  EXPECT_EQ(event.at("view").at("steps"), 30);
  EXPECT_EQ(event.at("strip").at("steps").size(), 30u);
  EXPECT_EQ(event.at("report").at("findings").at("requests"), 1);
  ASSERT_EQ(event.at("requests").size(), 1u);
  EXPECT_EQ(event.at("requests")[0].at("output_tokens"), 30);
  EXPECT_EQ(event.at("requests")[0].at("last_step"), 29);
  EXPECT_GT(event.at("requests")[0].at("device_us"), 0.0);
  end();
  EXPECT_THAT(client.receive_all(), testing::EndsWith("0\r\n\r\n"));
}

TEST_F(ProfileRoutesTest, RequestsAreDividedByTheirStepsWithoutAFile) {
  EXPECT_TRUE(get_json("/profile/requests").at("slowest").empty());
  for (const int max_tokens : {3, 30, 9})
    complete(max_tokens);
  EXPECT_EQ(probe_.num_ids, 0u);
  const Json reply = get_json("/profile/requests");
  EXPECT_EQ(reply.at("schema"), "minfer.requests/1");
  EXPECT_EQ(reply.at("ended"), 3);
  ASSERT_EQ(reply.at("slowest").size(), 3u);
  for (const Json& each : reply.at("slowest")) {
    const Json& request = each.at("request");
    EXPECT_EQ(each.at("known_steps"), request.at("output_tokens"));
    std::map<std::string, double> us;
    for (const Json& part : each.at("waterfall"))
      us[part.at("part")] = part.at("us");
    const double whole_us =
        static_cast<double>(request.at("end_ns").get<int64_t>() - request.at("arrival_ns").get<int64_t>()) *
        1e-3;
    EXPECT_NEAR(us["queue"] + us["prefill"] + us["decode"], whole_us, 0.01);
    EXPECT_NEAR(us["prefill.steps"] + us["prefill.rest"], us["prefill"], 0.01);
    EXPECT_NEAR(us["decode.alone"] + us["decode.rest"], us["decode"], 0.01);
    EXPECT_GT(us["decode.alone"], 0.0);
    EXPECT_FALSE(each.at("gaps").empty());
  }
  const Json second = reply.at("slowest")[1];
  const Json found = get_json("/profile/requests?id=" + second.at("request").at("id").get<std::string>());
  ASSERT_EQ(found.at("slowest").size(), 1u);
  EXPECT_EQ(found.at("slowest")[0].at("waterfall"), second.at("waterfall"));
  EXPECT_TRUE(get_json("/profile/requests?id=nobody").at("slowest").empty());
  EXPECT_EQ(reply.at("by"), "e2e");
  for (const char* by : {"ttft", "itl", "e2e"}) {
    const Json ordered = get_json(fmt::format("/profile/requests?by={}", by));
    EXPECT_EQ(ordered.at("by"), by);
    ASSERT_EQ(ordered.at("slowest").size(), 3u);
    for (size_t i = 1; i < 3; ++i)
      EXPECT_LE(ordered.at("slowest")[i].at("us"), ordered.at("slowest")[i - 1].at("us")) << by;
    EXPECT_EQ(by == std::string("e2e"), ordered.at("slowest")[0].at("us") == reply.at("slowest")[0].at("us"));
  }
}

TEST_F(ProfileRoutesTest, RequestsOfAServerAreThoseOfItsFile) {
  const std::string file = Json::parse(post("/start_profile").body).at("file");
  complete(20);
  EXPECT_EQ(post("/stop_profile").status, 200);
  const Json live = get_json("/profile/requests").at("slowest").at(0);
  const Json read =
      Json::parse(slow_requests_json(slow_requests(file, RequestOrder::e2e, 10))).at("slowest").at(0);
  EXPECT_EQ(live.at("known_steps"), read.at("known_steps"));
  ASSERT_EQ(live.at("waterfall").size(), read.at("waterfall").size());
  for (size_t i = 0; i < read.at("waterfall").size(); ++i) {
    EXPECT_EQ(live.at("waterfall")[i].at("part"), read.at("waterfall")[i].at("part"));
    EXPECT_NEAR(live.at("waterfall")[i].at("us").get<double>(),
                read.at("waterfall")[i].at("us").get<double>(), 1.0)
        << "a file has thousandths of microseconds of each step";
  }
  ASSERT_EQ(live.at("gaps").size(), read.at("gaps").size());
  for (size_t i = 0; i < read.at("gaps").size(); ++i)
    EXPECT_EQ(live.at("gaps")[i].at("step"), read.at("gaps")[i].at("step"));
}

TEST_F(ProfileRoutesTest, AnswersCarryTheTimesOfTheirRecords) {
  const auto ask = [&](std::string_view more) {
    const RawClient::Response response = post(
        "/v1/completions",
        fmt::format(
            R"({{"model":"minfer-demo","prompt":"Once upon a time","max_tokens":12,"ignore_eos":true{}}})",
            more));
    EXPECT_EQ(response.status, 200) << response.body;
    return response;
  };
  const RawClient::Response response = ask(R"(,"timings_per_token":true)");
  const Json timings = Json::parse(response.body).at("timings");
  const Json record = get_json("/profile/requests").at("slowest").at(0).at("request");
  EXPECT_EQ(timings.at("predicted_n"), 12);
  EXPECT_EQ(timings.at("prompt_n").get<int>() + timings.at("cache_n").get<int>(), record.at("prompt_tokens"));
  const double prompt_ms = timings.at("prompt_ms"), predicted_ms = timings.at("predicted_ms");
  EXPECT_NEAR(prompt_ms, record.at("prefill_us").get<double>() * 1e-3, 1e-5);
  EXPECT_GT(predicted_ms, 0.0);
  EXPECT_LE(predicted_ms, record.at("decode_us").get<double>() * 1e-3) << "the record goes on to its end";
  EXPECT_NEAR(timings.at("predicted_per_second").get<double>() * predicted_ms, 12e3, 1.0);
  EXPECT_NEAR(timings.at("prompt_per_token_ms").get<double>() * timings.at("prompt_n").get<double>(),
              prompt_ms, 1e-4);
  EXPECT_FALSE(timings.contains("draft_n"));
  EXPECT_EQ(response.header("server-timing"),
            fmt::format("queue;dur={:.3f}, prefill;dur={:.3f}, decode;dur={:.3f}",
                        record.at("queue_us").get<double>() * 1e-3, prompt_ms, predicted_ms));
  EXPECT_FALSE(Json::parse(ask("").body).contains("timings")) << "nobody asked";
  const RawClient::Response stream = ask(R"(,"stream":true)");
  EXPECT_THAT(stream.header("server-timing"),
              testing::MatchesRegex("queue;dur=[0-9.]+, prefill;dur=[0-9.]+"));
  EXPECT_THAT(stream.body, testing::Not(HasSubstr("timings")));
}

TEST_F(ProfileRoutesTest, SummaryHoldsWhatRanksDid) {
  complete(3);
  EXPECT_TRUE(get_json("/profile/summary").at("report").at("ranks").is_null());
  num_ranks_ = 2;
  serve();
  complete(30);
  const Json ranks = get_json("/profile/summary").at("report").at("ranks");
  ASSERT_EQ(ranks.at("ranks").size(), 2u);
  for (const Json& rank : ranks.at("ranks")) {
    EXPECT_GE(rank.at("steps"), 29) << "the other rank's last line comes with the next step";
    EXPECT_GT(rank.at("computed_us"), 0.0);
    EXPECT_GT(rank.at("host_us").at("p50"), 0.0);
  }
  EXPECT_LE(get_json("/profile/summary?last=10").at("report").at("ranks").at("ranks").at(1).at("steps"), 10);
}

TEST_F(ProfileRoutesTest, SummaryHoldsTheLastWindowsOfCounters) {
  reads_counters_ = true;
  serve();
  complete(2);
  EXPECT_TRUE(get_json("/profile/summary").at("report").at("counters").is_null());
  for (int i = 0; i < 20; ++i)
    counters_.add(test::sample_counters());
  const Json counters = get_json("/profile/summary").at("report").at("counters");
  EXPECT_EQ(counters.at("windows"), 8);
  EXPECT_EQ(counters.at("work").at(0).at("ops").at(0).at("op"), "gate_up_swiglu");
  expect_error(post("/start_profile", R"({"counters":true})"), 409, "hardware counters are being read");
  EXPECT_EQ(num_files(), 0u);
  EXPECT_EQ(post("/start_profile").status, 200);
}

// The CPU backend has no counters: the reply says so, and the steps are recorded all the same.
TEST_F(ProfileRoutesTest, CountersThatCannotBeHadAreSaidToBeMissing) {
  EXPECT_EQ(post("/start_profile", R"({"counters":true})").status, 200);
  complete(3);
  const Json stopped = Json::parse(post("/stop_profile").body);
  EXPECT_EQ(stopped.at("steps"), 3);
  EXPECT_THAT(stopped.at("counters_error").get<std::string>(), HasSubstr("hardware counters"));
  const ProfileFile file = read_profile(stopped.at("file").get<std::string>());
  EXPECT_EQ(file.steps.size(), 3u);
  ASSERT_EQ(file.counters.size(), 1u);
  EXPECT_FALSE(file.counters[0].error.empty());
  expect_error(post("/start_profile", R"({"counters":"yes"})"), 400, "counters", "counters");
}

TEST_F(ProfileRoutesTest, NeedTheKey) {
  serve({}, "secret");
  for (const char* path : {"/profile/steps", "/profile/summary", "/profile/requests", "/profile/events"})
    EXPECT_EQ(get(path).status, 401);
  for (const char* path : {"/start_profile", "/stop_profile"})
    EXPECT_EQ(post(path).status, 401);
  EXPECT_EQ(num_files(), 0u);
  RawClient client(server_->port());
  EXPECT_EQ(client.request("GET", "/profile/summary", {}, "authorization: Bearer secret\r\n").status, 200);
}

TEST_F(ProfileRoutesTest, ViewsThatNobodyTakesAreLimited) {
  complete(200);
  std::vector<RawClient> clients;
  int refused = 0;
  for (int i = 0; i < 60; ++i) {
    RawClient& client = clients.emplace_back(server_->port());
    client.set_receive_buffer(1024);
    ASSERT_TRUE(client.send(RawClient::request_text("GET", "/profile/steps?last=4096")));
  }
  for (RawClient& client : clients)
    refused += client.receive_until("\r\n").find(" 429 ") != std::string::npos ? 1 : 0;
  EXPECT_GT(refused, 0);
  EXPECT_LE(60 - refused, 16);
  for (RawClient& client : clients)
    client.reset();
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_TRUE(test::wait_until([&] { return get("/profile/steps").status == 200; }))
      << "once it knows that they are gone";
  complete(2);
}

}  // namespace
}  // namespace minfer
