#pragma once

#include <functional>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/optional/optional.hpp>
#include <boost/system/errc.hpp>

#include "server/http/http_connection.h"
#include "server/http/http_message.h"
#include "server/http/memory_reserve.h"

namespace minfer {

/// One request body's share of the budget, given back at the end. I/O thread.
class BodyShare {
 public:
  explicit BodyShare(std::shared_ptr<BodyBudget> budget) : budget_(std::move(budget)) {}
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;
  ~BodyShare() { give_back(); }

  void give_back() { budget_->used -= std::exchange(bytes_, 0); }

  /// Returns false if the budget does not allow it. A small body is always allowed,
  /// so that clients that fill the budget with large bodies lock out nobody else.
  bool grow(size_t bytes) {
    constexpr size_t kSmallBytes = 32u << 10;
    if (bytes_ + bytes > kSmallBytes && budget_->used + bytes > budget_->limit) return false;
    budget_->used += bytes;
    bytes_ += bytes;
    return true;
  }

 private:
  const std::shared_ptr<BodyBudget> budget_;
  size_t bytes_ = 0;
};

/// A body for Boost.Beast's parser. It takes memory as bytes arrive, not as Content-Length promises them, and no more than the budget has.
struct CountedBody {
  struct value_type {
    std::string text;
    std::unique_ptr<BodyShare> share;
  };

  class reader {
   public:
    template <class Header>
    reader(Header&, value_type& body) : body_(body) {}

    void init(const boost::optional<uint64_t>&, boost::system::error_code& error) { error = {}; }

    template <class Buffers>
    size_t put(const Buffers& buffers, boost::system::error_code& error) {
      const size_t size = boost::asio::buffer_size(buffers);
      error = {};
      if (!body_.share->grow(size)) {
        error = make_error_code(boost::system::errc::not_enough_memory);
        return 0;
      }
      try {
        const ClientSizedAllocations client_sized;
        for (const boost::asio::const_buffer bytes : boost::beast::buffers_range_ref(buffers))
          body_.text.append(static_cast<const char*>(bytes.data()), bytes.size());
      } catch (const std::bad_alloc&) {
        std::string().swap(body_.text);  // frees memory for the answer
        error = make_error_code(boost::system::errc::not_enough_memory);
        return 0;
      }
      return size;
    }

    void finish(boost::system::error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};

/// A request that a connection has handed over, and the writer of its answer. It
/// outlives the connection if the handler still holds it; `connection_` is then null.
class Connection::Exchange final : public HttpExchange {
 public:
  Exchange(Connection& connection, HttpRequest request, bool http_1_0, std::unique_ptr<BodyShare> body_share);

  HttpRequest& request() override { return request_; }
  void drop_body() override;
  bool hold(size_t bytes) override { return body_share_->grow(bytes); }
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

  /// Called when the client has taken some of the sent bytes.
  void on_taken();
  /// Sends a message that a waiting client skips; the kernel of a client that has gone answers with a reset.
  void ask_client();
  /// Called when the connection goes, or has taken the whole answer.
  void detach(bool all_sent);

 private:
  bool is_head() const { return request_.method == "HEAD"; }
  std::string head_of(const HttpResponse& response);
  void send(std::string_view bytes);
  void finish();

  Connection* connection_;
  HttpRequest request_;
  const std::unique_ptr<BodyShare> body_share_;
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
