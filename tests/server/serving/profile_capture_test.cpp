// POST /start_profile and /stop_profile over a backend that traces kernels.
#include "server/serving/profile/profile_capture.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "kernels/base/clock.h"
#include "profiling/json/json_reader.h"
#include "tests/support/profiling/fake_tracer.h"
#include "tests/support/server/test_server.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

class ProfileCaptureTest : public testing::Test {
 protected:
  ProfileCaptureTest() {
    setenv("MINFER_CEILINGS", "skip", 1);
    KernelLaunch launch;
    launch.kernel = "step_kernel";
    launch.grid = launch.block = {1, 1, 1};
    launches_.add(launch);
    test::ScriptedServing serving;
    serving.engine.steps_ahead = 1;
    serving.server.profile_dir = directory_.path().string();
    serving.tracer = &tracer_;
    serving.launches = &launches_;
    serving.memory = {.total_bytes = 1000, .used_bytes = 700, .used_before_bytes = 10, .parts = {}};
    server_ = std::make_unique<test::TestServer>(serving);
  }

  RawClient::Response post(std::string_view target, std::string_view body = {}) {
    return server_->connect().request("POST", target, body);
  }
  Json start(std::string_view body = {}) {
    const RawClient::Response response = post("/start_profile", body);
    EXPECT_EQ(response.status, 200) << response.body;
    return Json::parse(response.body);
  }
  Json stop() {
    const RawClient::Response response = post("/stop_profile");
    EXPECT_EQ(response.status, 200) << response.body;
    return Json::parse(response.body);
  }
  /// A completion of that many tokens, one in each step.
  void complete(int max_tokens) {
    const std::string body = fmt::format(
        R"({{"model":"scripted","prompt":[5,6,7],"max_tokens":{},"ignore_eos":true}})", max_tokens);
    EXPECT_EQ(post("/v1/completions", body).status, 200);
    EXPECT_TRUE(server_->wait_until_idle());
  }
  static void expect_steps(const ProfileFile& file, int64_t first, int64_t last) {
    ASSERT_EQ(std::ssize(file.steps), last - first + 1);
    EXPECT_EQ(file.steps.front().step, first);
    EXPECT_EQ(file.steps.back().step, last);
  }

  test::TemporaryDirectory directory_;
  LaunchTable launches_;
  test::FakeTracer tracer_;
  std::unique_ptr<test::TestServer> server_;
};

TEST_F(ProfileCaptureTest, TracesTheKernelsBetweenStartAndStop) {
  complete(4);
  const Json started = start();
  EXPECT_EQ(started.at("first_step"), 4);
  complete(10);
  const Json stopped = stop();
  complete(3);
  EXPECT_EQ(stopped.at("steps"), 10);
  EXPECT_EQ(stopped.at("kernels"), 10);
  EXPECT_EQ(tracer_.num_starts, 1);
  EXPECT_EQ(tracer_.num_stops, 1);
  const ProfileFile file = read_profile(started.at("file").get<std::string>());
  expect_steps(file, 4, 13);
  ASSERT_EQ(file.ranges.size(), 1u);
  EXPECT_EQ(file.ranges.front().unmatched + file.ranges.front().missing, 0);
  EXPECT_EQ(file.kernels.size(), 10u);
  EXPECT_EQ(file.kernels.front().kernel, "step_kernel");
  EXPECT_EQ(file.memory_at_end.used_bytes, 700);
  EXPECT_TRUE(file.header.asked.kernels);
  EXPECT_FALSE(file.header.asked.counters);
  ASSERT_EQ(file.traced.size(), 10u);
  EXPECT_TRUE(file.steps.front().kernels.has_value());
}

TEST_F(ProfileCaptureTest, SoManyStepsAreTracedAndThenItEndsByItself) {
  const Json started = start(R"({"num_steps":6,"start_step":5,"detail":"layer"})");
  EXPECT_EQ(started.at("first_step"), 5);
  complete(30);
  const std::string path = started.at("file");
  EXPECT_TRUE(test::wait_until(
      [&] { return std::filesystem::file_size(path) > 0 && read_profile(path).kernels.size() == 6; }));
  EXPECT_TRUE(test::wait_until([&] { return post("/start_profile").status == 200; })) << "it is over";
  const ProfileFile file = read_profile(path);
  expect_steps(file, 5, 10);
  EXPECT_EQ(file.kernels.size(), 6u);
  complete(2);
  EXPECT_EQ(stop().at("steps"), 2);
}

TEST_F(ProfileCaptureTest, AStopBeforeItsStepsEndsItAndKeepsWhatThereIs) {
  const Json started = start(R"({"num_steps":1000})");
  complete(7);
  EXPECT_EQ(stop().at("steps"), 7);
  start(R"({"start_step":1000})");
  complete(3);
  const Json stopped = stop();
  EXPECT_EQ(stopped.at("steps"), 0);
  EXPECT_FALSE(stopped.contains("kernels")) << "nothing had begun";
}

TEST_F(ProfileCaptureTest, AStartThatHasPassedIsRefusedAndLeavesNoFile) {
  complete(8);
  const RawClient::Response response = post("/start_profile", R"({"start_step":3})");
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr("start_step: 3 has passed, the next step is 8"));
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
  start();
  EXPECT_EQ(stop().at("steps"), 0) << "the next one works";
}

TEST_F(ProfileCaptureTest, WhatCannotBeTracedIsSaidAndStepsAreWritten) {
  tracer_.error = "CUPTI is held by nsys";
  const Json started = start();
  complete(5);
  const Json stopped = stop();
  EXPECT_EQ(stopped.at("steps"), 5);
  EXPECT_EQ(stopped.at("kernels_error"), "CUPTI is held by nsys");
  const ProfileFile file = read_profile(started.at("file").get<std::string>());
  ASSERT_EQ(file.ranges.size(), 1u);
  EXPECT_EQ(file.ranges.front().error, "CUPTI is held by nsys");
}

TEST_F(ProfileCaptureTest, WithoutTheGpusActivitiesNothingIsTraced) {
  const std::string path = start(R"({"activities":["CPU"]})").at("file");
  complete(5);
  EXPECT_EQ(stop().at("steps"), 5);
  EXPECT_FALSE(read_profile(path).header.asked.kernels);
  EXPECT_EQ(tracer_.num_starts, 0);
  start(R"({"activities":["CPU","GPU"]})");
  complete(5);
  EXPECT_EQ(stop().at("kernels"), 5);
}

/// A stream of at least a megabyte, in however few events: the system buffers only a small part of it for a client that
/// does not read.
class SlowClientProfileTest : public ProfileCaptureTest {
 protected:
  static constexpr int kChoices = 32, kTokens = 400;

  RawClient ask() {
    RawClient client = server_->connect();
    client.set_receive_buffer(4096);
    client.send(test::completion_request(
        test::completion_body({5, 6}, kTokens, true, fmt::format(R"("n":{},"logprobs":5)", kChoices))));
    return client;
  }
  /// Waits until the engine has delivered everything, and the system's part of it has been handed over.
  void wait_for_engine() {
    ASSERT_TRUE(test::wait_until(
        [&] { return server_->metric("vllm:generation_tokens_total") >= kChoices * kTokens; }));
    for (int i = 0; i < 20; ++i)
      EXPECT_EQ(server_->connect().request("GET", "/health").status, 200);
  }
};

TEST_F(SlowClientProfileTest, LinesOfRequestsTellHowLongTheClientTookBehindTheirEnd) {
  const std::string path = start()["file"];
  RawClient client = ask();
  wait_for_engine();
  const int64_t begin_ns = now_ns();
  ASSERT_TRUE(test::wait_until([&] { return now_ns() - begin_ns > 30'000'000; }));
  const int64_t idle_ns = now_ns() - begin_ns;
  EXPECT_EQ(client.response().status, 200);
  client.close();
  ASSERT_TRUE(server_->wait_until_idle());
  const int64_t over_ns = now_ns();
  stop();
  const ProfileFile file = read_profile(path);
  ASSERT_EQ(file.requests.size(), static_cast<size_t>(kChoices));
  for (const EndedRequest& request : file.requests) {
    EXPECT_EQ(request.finish, "length");
    EXPECT_GE(request.client_wait_after_ns, idle_ns) << "it measurably read nothing";
    EXPECT_LE(request.client_wait_after_ns, over_ns - request.end_ns);
  }
}

TEST_F(SlowClientProfileTest, AClientThatNeverReadsLosesNoLine) {
  const std::string path = start()["file"];
  const RawClient client = ask();
  wait_for_engine();
  const int64_t begin_ns = now_ns();
  stop();
  const ProfileFile file = read_profile(path);
  ASSERT_EQ(file.requests.size(), static_cast<size_t>(kChoices));
  for (const EndedRequest& request : file.requests) {
    EXPECT_GT(request.client_wait_after_ns, 0) << "as far as it is known";
    EXPECT_LT(request.client_wait_after_ns, now_ns() - request.end_ns);
    EXPECT_LT(request.end_ns, begin_ns);
  }
}

TEST_F(SlowClientProfileTest, AnAnswerThatIsTakenAtOnceHardlyWaits) {
  const std::string path = start()["file"];
  complete(5);
  stop();
  const ProfileFile file = read_profile(path);
  ASSERT_EQ(file.requests.size(), 1u);
  EXPECT_GE(file.requests[0].client_wait_after_ns, 0) << "known";
}

TEST_F(ProfileCaptureTest, AProfileThatStillRunsIsWrittenAtShutdown) {
  const std::string path = start().at("file");
  complete(6);
  server_->stop();
  server_.reset();
  const ProfileFile file = read_profile(path);
  expect_steps(file, 0, 5);
  EXPECT_EQ(file.kernels.size(), 6u);
  EXPECT_EQ(file.memory_at_end.used_bytes, 700);
  EXPECT_EQ(tracer_.num_stops, 1);
}

TEST_F(ProfileCaptureTest, TracesUnderLoad) {
  std::vector<std::jthread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([this] {
      RawClient client = server_->connect();
      for (int request = 0; request < 5; ++request) {
        EXPECT_EQ(client
                      .request("POST", "/v1/completions",
                               R"({"model":"scripted","prompt":[5,6,7],"max_tokens":40,"ignore_eos":true})")
                      .status,
                  200);
      }
    });
  }
  for (int i = 0; i < 5; ++i) {
    const std::string path = start().at("file");
    const Json stopped = stop();
    const ProfileFile file = read_profile(path);
    EXPECT_EQ(stopped.at("steps"), file.steps.size());
    EXPECT_EQ(file.kernels.size(), file.steps.size());
  }
  clients.clear();
  EXPECT_TRUE(server_->wait_until_idle());
}

}  // namespace
}  // namespace minfer
