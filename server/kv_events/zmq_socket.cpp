#include "server/kv_events/zmq_socket.h"

#include "kernels/base/error.h"

#ifdef MINFER_HAS_ZMQ
#include <array>
#include <cerrno>
#include <charconv>
#include <system_error>

#include <zmq.h>
#endif

namespace minfer {

#ifdef MINFER_HAS_ZMQ
namespace {

/// Far more than a request for a replay has.
constexpr int64_t kLongestMessage = 1024;

[[noreturn]] void fail_endpoint(std::string_view option, std::string_view what, const std::string& endpoint) {
  fail("{}: cannot {} {}: {}", option, what, endpoint, zmq_strerror(errno));
}

/// ZeroMQ takes 70000 for port 4464.
void check_port(std::string_view option, const std::string& endpoint) {
  if (!endpoint.starts_with("tcp://")) return;
  const std::string_view port = std::string_view(endpoint).substr(endpoint.rfind(':') + 1);
  uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (port == "*" || (error == std::errc() && end == port.data() + port.size() && number > 0)) return;
  fail("{}: \"{}\" has no port from 1 to 65535, or *", option, endpoint);
}

template <class Value>
void set_option(void* socket, int option, Value value) {
  if (zmq_setsockopt(socket, option, &value, sizeof value) != 0)
    fail("ZeroMQ: option {}: {}", option, zmq_strerror(errno));
}

}  // namespace

ZmqContext::ZmqContext() : context_(zmq_ctx_new()) {
  if (context_ == nullptr) fail("ZeroMQ: {}", zmq_strerror(errno));
}

ZmqContext::~ZmqContext() {
  zmq_ctx_term(context_);
}

ZmqSocket::ZmqSocket(const ZmqContext& context, Type type, int high_water_mark)
    : socket_(zmq_socket(context.get(), type == Type::publish ? ZMQ_PUB : ZMQ_ROUTER)) {
  if (socket_ == nullptr) fail("ZeroMQ: {}", zmq_strerror(errno));
  set_option(socket_, ZMQ_SNDHWM, high_water_mark);
  set_option(socket_, ZMQ_LINGER, 0);
  set_option(socket_, ZMQ_MAXMSGSIZE, kLongestMessage);  // of incoming messages
}

ZmqSocket::~ZmqSocket() {
  zmq_close(socket_);
}

void ZmqSocket::prepare(const std::string& endpoint, std::string_view option) {
  check_port(option, endpoint);
  set_option(socket_, ZMQ_IPV6, endpoint.find('[') == std::string::npos ? 0 : 1);
}

void ZmqSocket::bind(const std::string& endpoint, std::string_view option) {
  prepare(endpoint, option);
  if (zmq_bind(socket_, endpoint.c_str()) != 0) fail_endpoint(option, "listen at", endpoint);
}

void ZmqSocket::connect(const std::string& endpoint, std::string_view option) {
  prepare(endpoint, option);
  if (zmq_connect(socket_, endpoint.c_str()) != 0) fail_endpoint(option, "connect to", endpoint);
}

std::string ZmqSocket::bound_endpoint() const {
  std::array<char, 512> text{};
  size_t size = text.size();
  zmq_getsockopt(socket_, ZMQ_LAST_ENDPOINT, text.data(), &size);
  return text.data();
}

bool ZmqSocket::send(std::span<const std::string_view> frames) {
  for (size_t i = 0; i < frames.size(); ++i) {
    const int flags = ZMQ_DONTWAIT | (i + 1 < frames.size() ? ZMQ_SNDMORE : 0);
    if (zmq_send(socket_, frames[i].data(), frames[i].size(), flags) < 0) return false;
  }
  return true;
}

std::optional<std::vector<std::string>> ZmqSocket::receive() {
  std::vector<std::string> frames;
  zmq_msg_t message;
  bool more = true;
  while (more) {
    zmq_msg_init(&message);
    if (zmq_msg_recv(&message, socket_, ZMQ_DONTWAIT) < 0) {
      zmq_msg_close(&message);
      return std::nullopt;
    }
    frames.emplace_back(static_cast<const char*>(zmq_msg_data(&message)), zmq_msg_size(&message));
    more = zmq_msg_more(&message) != 0;
    zmq_msg_close(&message);
  }
  return frames;
}

void ZmqSocket::wait_readable(const ZmqSocket* socket, int descriptor) {
  std::array<zmq_pollitem_t, 2> items{
      {{.socket = nullptr, .fd = descriptor, .events = ZMQ_POLLIN, .revents = 0},
       {.socket = socket == nullptr ? nullptr : socket->socket_,
        .fd = 0,
        .events = ZMQ_POLLIN,
        .revents = 0}}};
  zmq_poll(items.data(), socket == nullptr ? 1 : 2, -1);
}

#else

ZmqContext::ZmqContext() : context_(nullptr) {
  fail(
      "--kv-events-endpoint: this program was built without ZeroMQ, which was not found then (Debian's "
      "package: libzmq3-dev)");
}
ZmqContext::~ZmqContext() = default;
ZmqSocket::ZmqSocket(const ZmqContext&, Type, int) : socket_(nullptr) {}
ZmqSocket::~ZmqSocket() = default;
void ZmqSocket::bind(const std::string&, std::string_view) {}
void ZmqSocket::connect(const std::string&, std::string_view) {}
std::string ZmqSocket::bound_endpoint() const {
  return {};
}
bool ZmqSocket::send(std::span<const std::string_view>) {
  return false;
}
std::optional<std::vector<std::string>> ZmqSocket::receive() {
  return std::nullopt;
}
void ZmqSocket::wait_readable(const ZmqSocket*, int) {}

#endif

}  // namespace minfer
