#include "server/http/http_server.h"

#include <iterator>
#include <random>
#include <utility>
#include <vector>

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

/// A handler that does nothing once the server is gone.
template <class Handler>
auto HttpServer::while_here(Handler handler) {
  return [handler = std::move(handler), here = std::weak_ptr<bool>(here_)](auto&&... results) mutable {
    if (!here.expired()) handler(std::forward<decltype(results)>(results)...);
  };
}

HttpServer::HttpServer(EventLoop& loop, HttpServerOptions options, HttpHandler handler)
    : loop_(loop),
      options_(std::move(options)),
      handler_(std::move(handler)),
      acceptor_(loop.context()),
      bodies_(std::make_shared<BodyBudget>(
          BodyBudget{.limit = std::max(options_.limits.all_bodies_bytes, options_.limits.body_bytes)})) {
  std::random_device device;
  id_key_ = (uint64_t{device()} << 32) | device();
  listen();
  accept_next();
  sweep();
}

HttpServer::~HttpServer() {
  listening_ = false;
  end_accepting();
  close_all();
}

void HttpServer::listen() {
  endpoint_ = resolve(loop_, options_.host, options_.port);
  boost::system::error_code error;
  const auto check = [&](const char* what) {
    if (error) fail("cannot {} {}:{}: {}", what, options_.host, options_.port, error.message());
  };
  acceptor_.open(endpoint_.protocol(), error);
  check("open a socket for");
  acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  acceptor_.set_option(MaxSegment(kMaxSegmentBytes), error);
  acceptor_.bind(endpoint_, error);
  check("bind to");
  acceptor_.listen(asio::socket_base::max_listen_connections, error);
  check("listen on");
  endpoint_ = acceptor_.local_endpoint();
}

void HttpServer::accept_next() {
  acceptor_.async_accept(while_here([this](const boost::system::error_code& error, tcp::socket socket) {
    if (!acceptor_.is_open()) {
      if (!error) accepted(std::move(socket));  // accepted before that, and told of only now
      return;
    }
    if (error && !close_one_of(ending_) && !close_one_of(idle_)) {
      // Usually the descriptors have run out: connections in use must end first.
      return loop_.post_after(kAcceptPause, while_here([this] {
                                if (acceptor_.is_open()) accept_next();
                              }));
    }
    accept_next();
    if (!error) accepted(std::move(socket));
  }));
}

/// Takes the connections that the kernel has accepted already: closing the acceptor would reset them.
void HttpServer::end_accepting() {
  if (!acceptor_.is_open()) return;
  boost::system::error_code error;
  acceptor_.non_blocking(true, error);
  while (!error) {
    tcp::socket socket(loop_.context());
    acceptor_.accept(socket, error);
    if (!error) accepted(std::move(socket));
  }
  acceptor_.close(error);
}

void HttpServer::accepted(tcp::socket socket) {
  const size_t limit = options_.limits.max_connections, spare = options_.limits.spare_connections;
  if (connections_.size() >= limit) close_one_of(idle_);
  if (connections_.size() >= limit + spare && !close_one_of(ending_)) return;
  const auto connection =
      std::make_shared<Connection>(*this, std::move(socket), connections_.size() >= limit);
  connections_.insert(connection);
  connection->start();
}

/// Returns false if each connection is needed.
bool HttpServer::close_one_of(const Yielding& list) {
  const auto now = Connection::Clock::now();
  const auto found = std::ranges::find_if(list, [&](const Connection* each) { return each->can_yield(now); });
  if (found == list.end()) return false;
  (*found)->close();
  return true;
}

void HttpServer::sweep() {
  loop_.post_after(kSweepInterval, while_here([this] { sweep(); }));
  set_memory_aside();
  const Connection::Clock::time_point now = Connection::Clock::now();
  for (const std::shared_ptr<Connection>& connection : std::vector(connections_.begin(), connections_.end()))
    connection->check_deadline(now);
}

size_t HttpServer::num_answering() const {
  return static_cast<size_t>(
      std::ranges::count_if(connections_, [](const auto& connection) { return connection->is_answering(); }));
}

void HttpServer::stop_listening() {
  if (!std::exchange(listening_, false)) return;
  drop_new_handshakes(acceptor_.native_handle());
  loop_.post_after(kHandshakeTime, while_here([this] { end_accepting(); }));
  for (const std::shared_ptr<Connection>& connection : std::vector(connections_.begin(), connections_.end()))
    connection->close_if_idle();
}

void HttpServer::close_all() {
  for (const std::shared_ptr<Connection>& connection : std::vector(connections_.begin(), connections_.end()))
    connection->close();
}

}  // namespace minfer
