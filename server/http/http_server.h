#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>

#include <boost/asio/ip/tcp.hpp>

#include "server/http/event_loop.h"
#include "server/http/http_message.h"

namespace minfer {

/// Limits on what a client may cost. If a request exceeds one, the answer is its status
/// (431, 413, 408, 503), or the connection is closed if no answer can be sent any more.
struct HttpLimits {
  size_t header_bytes = 32u << 10;  ///< for headers, for trailers, and for a body's chunk extensions
  size_t body_bytes = 16u << 20;
  size_t all_bodies_bytes = 256u << 20;    ///< for all requests being read or parsed; small ones pass
  size_t write_buffer_bytes = 128u << 10;  ///< of a longer answer, made ahead of the client's reading
  size_t socket_buffer_bytes = 32u << 10;  ///< the kernel's share of that; it takes twice the number
  size_t max_connections = 16'384;         ///< idle ones make room; if none is idle, more get a 503
  /// Further connections that are read: for requests that are answered all the same, and to say 503.
  size_t spare_connections = 64;
  std::chrono::milliseconds header_timeout{10'000};  ///< from a request's first byte to its last header
  std::chrono::milliseconds body_timeout{60'000};    ///< from there to its last byte
  std::chrono::milliseconds idle_timeout{300'000};   ///< between two requests
  /// In each period of this length, a client must take all bytes that wait for it, or as many as the least rate gives.
  std::chrono::milliseconds write_timeout{30'000};
  /// After the last answer of a connection, for data that its client still sends: closing would destroy the answer on its way.
  std::chrono::milliseconds linger_timeout{2'000};
  size_t least_write_rate = 4096;  ///< bytes a second

  size_t least_taken_bytes() const {
    return std::max<size_t>(1, least_write_rate * static_cast<size_t>(write_timeout.count()) / 1000);
  }
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  ///< 0: any that is free
  HttpLimits limits = {};
  /// The body of an error that the transport itself answers.
  std::function<std::string(int status, const std::string& message)> error_body = nullptr;
  /// Called before a request's body is read: an answer here saves reading it and ends the connection.
  std::function<std::optional<HttpResponse>(const HttpRequest& head)> refusal = nullptr;
  /// True if a request is answered even if there are max_connections already.
  std::function<bool(const HttpRequest& head)> is_vital = nullptr;
  /// Called for every exchange when it is over.
  std::function<void(const HttpRequest&, const HttpOutcome&)> on_finished = nullptr;
};

class Connection;

/// Bytes of request bodies in memory, over all connections. I/O thread.
struct BodyBudget {
  size_t limit = 0;
  size_t used = 0;
};

/// HTTP/1.1 over TCP: keep-alive, pipelining, chunked streams, limits and time-outs. All of it runs on
/// the loop's I/O thread, which also calls `handler`; the handler answers at once or later. A client that
/// closes its connection ends its exchange. A client that closes only its sending half gets its answer.
class HttpServer {
 public:
  /// Binds and listens. Throws Error if it cannot have the address. `loop` outlives the server.
  HttpServer(EventLoop& loop, HttpServerOptions options, HttpHandler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const { return endpoint_.port(); }
  bool is_loopback() const { return endpoint_.address().is_loopback(); }
  size_t num_connections() const { return connections_.size(); }
  /// True while connections may still come: until a moment after stop_listening(). I/O thread.
  bool is_accepting() const { return acceptor_.is_open(); }
  /// The number of connections with a request whose answer is not sent yet. I/O thread.
  size_t num_answering() const;

  /// Closes each connection after its next answer. I/O thread.
  void end_keep_alive() { keeps_alive_ = false; }
  /// Takes no further connections, except those whose handshake has begun, and closes
  /// connections that wait for a request; new ones have a moment to send theirs. I/O thread.
  void stop_listening();
  /// Closes every connection, whatever it does. I/O thread.
  void close_all();
  /// Takes an accepted connection. I/O thread.
  void accepted(boost::asio::ip::tcp::socket socket);

 private:
  friend class Connection;
  /// Connections that can be closed to make room for others. Those that have been in the list longest are in front.
  using Yielding = std::list<Connection*>;

  template <class Handler>
  auto while_here(Handler handler);
  void listen();
  void accept_next();
  void end_accepting();
  bool close_one_of(const Yielding& list);
  void sweep();

  EventLoop& loop_;
  const HttpServerOptions options_;
  const HttpHandler handler_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::ip::tcp::endpoint endpoint_;
  bool listening_ = true;
  bool keeps_alive_ = true;
  std::unordered_set<std::shared_ptr<Connection>> connections_;  ///< open ones
  Yielding idle_;                                                ///< connections that wait for a request
  Yielding ending_;  ///< beyond the limit without a whole head, or answered for the last time
  const std::shared_ptr<BodyBudget> bodies_;
  uint64_t id_key_ = 0;  ///< key of drawn request ids: random, drawn once a server
  uint64_t num_ids_ = 0;
  const std::shared_ptr<bool> here_ = std::make_shared<bool>();  ///< goes with the server
};

}  // namespace minfer
