#include "server/http/http_server.h"

#include <algorithm>
#include <random>
#include <utility>

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "kernels/error.h"
#include "server/http/event_loop_impl.h"
#include "server/http/http_connection.h"

namespace minfer {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

/// Connections inherit it. The loopback's segments of 64 KiB are as large as a send buffer: the client's kernel
/// would put off acknowledging one for 40 ms, in the hope of a second that has no place before that.
using MaxSegment = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_MAXSEG>;
constexpr int kMaxSegmentBytes = 8 << 10;

/// How long accepting pauses when the process has no descriptor left.
constexpr std::chrono::milliseconds kAcceptPause{100};

tcp::endpoint resolve(EventLoop& loop, const std::string& host, uint16_t port) {
  tcp::resolver resolver(loop.impl().context);
  boost::system::error_code error;
  const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, error);
  if (error || found.empty())
    fail("--host {}: {}, expected an address of this machine", host, error.message());
  return *found.begin();
}

}  // namespace

HttpServer::Impl::Impl(EventLoop& event_loop, HttpServerOptions server_options, HttpHandler server_handler)
    : loop(event_loop),
      options(std::move(server_options)),
      handler(std::move(server_handler)),
      acceptor(event_loop.impl().context),
      bodies(std::make_shared<BodyBudget>(
          BodyBudget{.limit = std::max(options.limits.all_bodies_bytes, options.limits.body_bytes)})) {
  std::random_device device;
  id_key = (uint64_t{device()} << 32) | device();
}

void HttpServer::Impl::listen() {
  endpoint = resolve(loop, options.host, options.port);
  boost::system::error_code error;
  const auto check = [&](const char* what) {
    if (error) fail("cannot {} {}:{}: {}", what, options.host, options.port, error.message());
  };
  acceptor.open(endpoint.protocol(), error);
  check("open a socket for");
  acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  acceptor.set_option(MaxSegment(kMaxSegmentBytes), error);
  acceptor.bind(endpoint, error);
  check("bind to");
  acceptor.listen(asio::socket_base::max_listen_connections, error);
  check("listen on");
  endpoint = acceptor.local_endpoint();
  listening = true;
}

void HttpServer::Impl::accept_next() {
  acceptor.async_accept(
      [self = shared_from_this()](const boost::system::error_code& error, tcp::socket socket) {
        if (!self->listening) {
          // Accepted before the listening ended, and told of only now.
          if (!error && !self->stopped) self->accepted(std::move(socket));
          return;
        }
        if (error) {
          // Mostly no descriptors: those in use have to go first.
          self->loop.post_after(kAcceptPause, [self] {
            if (self->listening) self->accept_next();
          });
          return;
        }
        self->accept_next();
        self->accepted(std::move(socket));
      });
}

/// Takes the connections that the kernel has accepted already: closing the acceptor would reset them.
void HttpServer::Impl::accept_backlog() {
  boost::system::error_code error;
  acceptor.non_blocking(true, error);
  while (!error) {
    tcp::socket socket(loop.impl().context);
    acceptor.accept(socket, error);
    if (!error) accepted(std::move(socket));
  }
}

std::string HttpServer::Impl::draw_request_id() {
  return fmt::format("{:016x}-{:x}", id_key, ++num_ids);
}

HttpServer::HttpServer(EventLoop& loop, HttpServerOptions options, HttpHandler handler)
    : impl_(std::make_shared<Impl>(loop, std::move(options), std::move(handler))) {
  impl_->listen();
  impl_->accept_next();
  impl_->sweep();
}

HttpServer::~HttpServer() {
  stop_listening();
  close_all();
  impl_->stopped = true;
}

const std::string& HttpServer::host() const {
  return impl_->options.host;
}

uint16_t HttpServer::port() const {
  return impl_->endpoint.port();
}

bool HttpServer::is_loopback() const {
  return impl_->endpoint.address().is_loopback();
}

size_t HttpServer::num_connections() const {
  return impl_->connections.size();
}

size_t HttpServer::num_answering() const {
  return static_cast<size_t>(std::ranges::count_if(
      impl_->connections, [](const auto& connection) { return connection->is_answering(); }));
}

void HttpServer::end_keep_alive() {
  impl_->keeps_alive = false;
}

void HttpServer::stop_listening() {
  if (!std::exchange(impl_->listening, false)) return;
  impl_->accept_backlog();
  boost::system::error_code ignored;
  impl_->acceptor.close(ignored);
  for (const std::shared_ptr<Connection>& connection : std::vector(impl_->connections))
    connection->close_if_idle();
}

void HttpServer::close_all() {
  for (const std::shared_ptr<Connection>& connection : std::vector(impl_->connections))
    connection->close();
}

}  // namespace minfer
