#include "server/http_server.h"

#include <algorithm>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "kernels/error.h"
#include "server/event_loop_impl.h"
#include "server/http_connection.h"

namespace minfer {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

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
      acceptor(event_loop.impl().context) {
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
  acceptor.bind(endpoint, error);
  check("bind to");
  acceptor.listen(asio::socket_base::max_listen_connections, error);
  check("listen on");
  endpoint = acceptor.local_endpoint();
  listening = true;
}

void HttpServer::Impl::accept_next() {
  acceptor.async_accept([this](const boost::system::error_code& error, tcp::socket socket) {
    if (!listening) return;
    if (!error) {
      accepted(std::move(socket));
      accept_next();
      return;
    }
    // Mostly no descriptors: those in use have to go first.
    loop.post_after(kAcceptPause, [this] {
      if (listening) accept_next();
    });
  });
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

void HttpServer::end_keep_alive() {
  impl_->keeps_alive = false;
}

void HttpServer::stop_listening() {
  impl_->listening = false;
  boost::system::error_code ignored;
  impl_->acceptor.close(ignored);
  for (const std::weak_ptr<Connection>& entry : std::vector(impl_->connections)) {
    if (const auto connection = entry.lock()) connection->close_if_idle();
  }
}

void HttpServer::close_all() {
  for (const std::weak_ptr<Connection>& entry : std::vector(impl_->connections)) {
    if (const auto connection = entry.lock()) connection->close();
  }
}

}  // namespace minfer
