#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace minfer {

/// A ZeroMQ context. It is not destroyed while it has sockets.
class ZmqContext {
 public:
  /// Throws Error in a build without libzmq.
  ZmqContext();
  ~ZmqContext();
  ZmqContext(const ZmqContext&) = delete;
  ZmqContext& operator=(const ZmqContext&) = delete;
  void* get() const { return context_; }

 private:
  void* context_;
};

/// A ZeroMQ socket. One thread at a time; only wait_readable() waits.
class ZmqSocket {
 public:
  enum class Type : uint8_t { publish, router };

  /// `high_water_mark`: messages that wait for one peer; further ones are lost for it.
  ZmqSocket(const ZmqContext& context, Type type, int high_water_mark);
  ~ZmqSocket();
  ZmqSocket(const ZmqSocket&) = delete;
  ZmqSocket& operator=(const ZmqSocket&) = delete;

  /// `option`: the option that gave the endpoint, named by the Error that says why it cannot be had.
  void bind(const std::string& endpoint, std::string_view option);
  void connect(const std::string& endpoint, std::string_view option);
  /// The bound address, with the port that "*" stood for.
  std::string bound_endpoint() const;

  /// False: it was not sent.
  bool send(std::span<const std::string_view> frames);
  /// The frames of the next message; absent: there is none.
  std::optional<std::vector<std::string>> receive();
  /// Waits for a message at `socket` (null: for none) or until `descriptor` can be read.
  static void wait_readable(const ZmqSocket* socket, int descriptor);

 private:
  void prepare(const std::string& endpoint, std::string_view option);

  void* socket_;
};

}  // namespace minfer
