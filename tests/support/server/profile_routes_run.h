#pragma once

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "server/serving/server.h"
#include "tests/support/profiling/sample_counters.h"
#include "tests/support/server/raw_client.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/wait.h"

namespace minfer::test {

/// Counts the request ids that records carry.
class IdProbe final : public StepSink {
 public:
  void consume(const StepRecord& record) noexcept override { num_ids += record.requests.size(); }
  bool wants_requests() const noexcept override { return false; }
  std::atomic<size_t> num_ids{0};
};

/// A whole server with the demo model, and requests to its profile endpoints.
class ProfileRoutesTest : public testing::Test {
 protected:
  ProfileRoutesTest() { serve(); }
  ~ProfileRoutesTest() override { end(); }

  void serve(std::filesystem::path folder = {}, std::string api_key = {}) {
    end();
    num_steps_ = 0;
    EngineOptions options;
    options.device = DeviceChoice::cpu;
    options.max_model_len = 256;
    options.num_blocks = 256;
    options.threads = num_ranks_;
    options.tensor_parallel_size = num_ranks_;
    setenv("MINFER_CEILINGS", "skip", 1);
    loop_ = std::make_unique<EventLoop>();
    engine_ = std::make_unique<Engine>(open_model(""), options);
    engine_->recorder().add_sink(probe_);
    ServerOptions server;
    server.port = 0;
    if (!api_key.empty()) server.access.api_keys = {std::move(api_key)};
    server.profile_dir = folder.empty() ? directory_.path().string() : folder.string();
    if (reads_counters_) server.counters = &counters_;
    server_ = std::make_unique<Server>(*loop_, *engine_, log_, server);
    thread_ = std::jthread([this] { server_->run(); });
  }

  /// Ends the server as SIGTERM does.
  void end() {
    if (!server_) return;
    server_->shut_down();
    thread_.join();
    server_.reset();
    engine_.reset();
    loop_.reset();
  }

  RawClient::Response get(std::string_view target) {
    return RawClient(server_->port()).request("GET", target);
  }
  RawClient::Response post(std::string_view target, std::string_view body = {}) {
    return RawClient(server_->port()).request("POST", target, body);
  }
  nlohmann::json get_json(std::string_view target) {
    const RawClient::Response response = get(target);
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(response.header("content-type"), "application/json");
    EXPECT_EQ(response.header("cache-control"), "no-store");
    return nlohmann::json::parse(response.body);
  }
  /// Requests a completion of this many tokens, a step each, and waits for the end of the last step: the
  /// answer leaves a little before it.
  void complete(int max_tokens) {
    const std::string body = fmt::format(
        R"({{"model":"minfer-demo","prompt":"Once upon a time","max_tokens":{},"ignore_eos":true}})",
        max_tokens);
    ASSERT_EQ(post("/v1/completions", body).status, 200);
    num_steps_ += max_tokens;
    ASSERT_TRUE(wait_until([&] { return get_json("/profile/steps").at("newest") == num_steps_ - 1; }));
  }
  static void expect_error(const RawClient::Response& response, int status, std::string_view words,
                           const nlohmann::json& param = nullptr) {
    EXPECT_EQ(response.status, status) << response.body;
    const auto error = nlohmann::json::parse(response.body).at("error");
    EXPECT_THAT(error.at("message").get<std::string>(), testing::HasSubstr(std::string(words)));
    EXPECT_EQ(error.at("param"), param);
  }
  size_t num_files() const {
    const std::filesystem::directory_iterator files(directory_.path());
    return static_cast<size_t>(std::distance(begin(files), std::filesystem::directory_iterator{}));
  }

  int num_steps_ = 0;
  int32_t num_ranks_ = 1;
  bool reads_counters_ = false;  ///< for the server that serve() makes
  LatestCounters counters_;
  IdProbe probe_;
  TemporaryDirectory directory_;
  ServerLog log_{LogFormat::text, LogLevel::off};
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Server> server_;
  std::jthread thread_;
};

}  // namespace minfer::test
