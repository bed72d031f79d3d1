#pragma once

#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/http/http_server.h"
#include "tests/support/server/raw_client.h"
#include "tests/support/wait.h"

namespace minfer::test {

/// A server on its own thread, with the test's handler.
class HttpServerTest : public testing::Test {
 protected:
  void serve(HttpHandler handler, HttpLimits limits = {}) {
    server_ = std::make_unique<HttpServer>(
        loop_,
        HttpServerOptions{
            .port = 0,
            .limits = limits,
            .error_body = [](int status,
                             const std::string& message) { return fmt::format("{}: {}", status, message); },
            .on_finished =
                [this](const HttpRequest&, const HttpOutcome& outcome) {
                  const std::lock_guard lock(mutex_);
                  outcomes_.push_back(outcome);
                }},
        std::move(handler));
    thread_ = std::jthread([this] { loop_.run(); });
  }

  void echo(HttpLimits limits = {}) {
    serve(
        [](const std::shared_ptr<HttpExchange>& exchange) {
          const HttpRequest& request = exchange->request();
          exchange->respond({.content_type = "text/plain",
                             .body = fmt::format("{} {} {} [{}]", request.method, request.path, request.query,
                                                 request.body)});
        },
        limits);
  }

  void TearDown() override {
    loop_.stop();
    thread_ = {};
    server_.reset();
  }

  RawClient connect() { return RawClient(server_->port()); }

  std::vector<HttpOutcome> outcomes() {
    const std::lock_guard lock(mutex_);
    return outcomes_;
  }

  /// Waits until that many exchanges are over.
  std::vector<HttpOutcome> wait_for_outcomes(size_t count) {
    EXPECT_TRUE(wait_until([&] { return outcomes().size() >= count; }));
    return outcomes();
  }

  /// The server's number, from its I/O thread.
  size_t num_connections() {
    std::promise<size_t> count;
    loop_.post([&] { count.set_value(server_->num_connections()); });
    return count.get_future().get();
  }

  EventLoop loop_;
  std::unique_ptr<HttpServer> server_;
  std::jthread thread_;
  std::mutex mutex_;
  std::vector<HttpOutcome> outcomes_;
};

}  // namespace minfer::test
