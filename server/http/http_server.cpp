#include "server/http/http_server.h"

#include <iterator>
#include <random>
#include <utility>

#include <fmt/format.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "kernels/base/error.h"
#include "server/http/http_connection.h"
#include "server/http/memory_reserve.h"

namespace minfer {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

/// Connections inherit it. The loopback's segments of 64 KiB are as large as a send buffer: the client's kernel
/// would delay the acknowledgement of one for 40 ms, waiting for a second that finds no place before that.
using MaxSegment = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_MAXSEG>;
constexpr int kMaxSegmentBytes = 8 << 10;

/// The time that accepting pauses when the process has no descriptor left.
constexpr std::chrono::milliseconds kAcceptPause{100};

constexpr std::chrono::milliseconds kSweepInterval{250};

/// The time that handshakes which have begun may take once no other begins.
constexpr std::chrono::milliseconds kHandshakeTime{100};

/// From now on the kernel drops packets that ask this socket for a connection, and lets handshakes that have begun end:
/// closing a listening socket resets those. Clients ask again after a second, and find the next server or none. See
/// "Socket filters" in Linux' networking/filter.rst; with a kernel that has none, closing is as in any other program.
void drop_new_handshakes(int socket) {
  constexpr uint32_t kFlags = 13, kSynAck = TH_SYN | TH_ACK;  // of RFC 9293, section 3.1
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kFlags),
                        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, kSynAck),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TH_SYN, 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, 0),            // a first packet: none of it is taken
                        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX)};  // any other: all of it
  const sock_fprog program{.len = std::size(code), .filter = code};
  ::setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

tcp::endpoint resolve(EventLoop& loop, const std::string& host, uint16_t port) {
  tcp::resolver resolver(loop.context());
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
      acceptor(event_loop.context()),
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
        if (!self->acceptor.is_open()) {
          // Accepted before that, and told of only now.
          if (!error && !self->stopped) self->accepted(std::move(socket));
          return;
        }
        if (error && !self->close_one_of(self->ending) && !self->close_one_of(self->idle)) {
          // Usually the descriptors have run out: connections in use must end first.
          self->loop.post_after(kAcceptPause, [self] {
            if (self->acceptor.is_open()) self->accept_next();
          });
          return;
        }
        self->accept_next();
        if (!error) self->accepted(std::move(socket));
      });
}

/// Takes the connections that the kernel has accepted already: closing the acceptor would reset them.
void HttpServer::Impl::accept_backlog() {
  boost::system::error_code error;
  acceptor.non_blocking(true, error);
  while (!error) {
    tcp::socket socket(loop.context());
    acceptor.accept(socket, error);
    if (!error) accepted(std::move(socket));
  }
}

void HttpServer::Impl::end_accepting() {
  if (!acceptor.is_open()) return;
  accept_backlog();
  boost::system::error_code ignored;
  acceptor.close(ignored);
}

/// Returns false if each connection is needed.
bool HttpServer::Impl::close_one_of(YieldingConnections& list) {
  const auto now = Connection::Clock::now();
  const auto found = std::ranges::find_if(list, [&](const Connection& each) { return each.can_yield(now); });
  if (found == list.end()) return false;
  found->close();
  return true;
}

void HttpServer::Impl::remove(Connection& connection) {
  const size_t slot = connection.slot;
  std::swap(connections[slot], connections.back());
  connections[slot]->slot = slot;
  connections.pop_back();
}

void HttpServer::Impl::sweep() {
  set_memory_aside();
  const Connection::Clock::time_point now = Connection::Clock::now();
  for (size_t i = connections.size(); i-- > 0;) {
    if (i >= connections.size()) continue;  // closing one may have closed others
    const std::shared_ptr<Connection> connection = connections[i];
    connection->check_deadline(now);
  }
  loop.post_after(kSweepInterval, [self = shared_from_this()] {
    if (!self->stopped) self->sweep();
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
  impl_->listening = false;
  impl_->end_accepting();
  close_all();
  impl_->stopped = true;
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

bool HttpServer::is_accepting() const {
  return impl_->acceptor.is_open();
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
  drop_new_handshakes(impl_->acceptor.native_handle());
  impl_->loop.post_after(kHandshakeTime, [impl = impl_] { impl->end_accepting(); });
  for (const std::shared_ptr<Connection>& connection : std::vector(impl_->connections))
    connection->close_if_idle();
}

void HttpServer::close_all() {
  for (const std::shared_ptr<Connection>& connection : std::vector(impl_->connections))
    connection->close();
}

}  // namespace minfer
