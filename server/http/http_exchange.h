#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "server/http/http_body.h"
#include "server/http/http_connection.h"
#include "server/http/http_message.h"

namespace minfer {

/// A request that a connection has handed over, and what writes its answer. It outlives the connection where
/// the handler still holds it: `connection_` is null then.
class Connection::Exchange final : public HttpExchange {
 public:
  Exchange(Connection& connection, HttpRequest request, bool http_1_0, BodyShare body_share = {});

  HttpRequest& request() override { return request_; }
  void drop_body() override;
  bool hold(size_t bytes) override { return body_share_.grow(bytes); }
  bool is_closed() const override { return connection_ == nullptr && !ended_; }
  void on_closed(std::function<void()> callback) override { on_closed_ = std::move(callback); }
  void on_over(std::function<void()> callback) override { on_over_ = std::move(callback); }
  void respond(HttpResponse response) override;
  void begin_stream(HttpResponse head) override;
  void write(std::string_view text) override;
  void end() override;
  void abort() override;
  bool has_room() const override;
  void on_room(std::function<void()> callback) override { on_room_ = std::move(callback); }

  /// The client has taken some of what was sent.
  void on_taken();
  /// Sends what a client that waits skips, and the kernel of one that has gone answers with a reset.
  void ask_client();
  /// The connection is going, or has taken the whole answer.
  void detach(bool all_sent);

 private:
  bool is_head() const { return request_.method == "HEAD"; }
  std::string head_of(const HttpResponse& response);
  void send(std::string_view bytes);
  void finish();

  Connection* connection_;
  HttpRequest request_;
  BodyShare body_share_;
  const bool http_1_0_;
  const int64_t begin_ns_;
  std::function<void()> on_closed_;
  std::function<void()> on_room_;
  std::function<void()> on_over_;
  bool ended_ = false;
  bool has_asked_ = false;
  int status_ = 0;
  uint64_t sent_bytes_ = 0;
};

}  // namespace minfer
