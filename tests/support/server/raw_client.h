#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "tests/support/wait.h"

namespace minfer {

/// A TCP connection to a server on this machine, for tests that have to misbehave: it sends any bytes and
/// reads what comes. Blocking. Throws std::runtime_error if it cannot connect, or if the peer neither sends
/// nor takes anything for `patience`, so that a connection that stays open never looks closed.
class RawClient {
 public:
  explicit RawClient(uint16_t port, std::chrono::milliseconds patience = test::kPatience);
  ~RawClient();
  RawClient(RawClient&& other) noexcept;
  RawClient& operator=(RawClient&&) = delete;

  /// False if the peer closes before it has taken everything.
  bool send(std::string_view bytes);
  /// Sends nothing more from now on.
  void shut_sending();
  /// Closes with a reset: unread data is lost.
  void reset();
  void close();
  void set_receive_buffer(int bytes);

  /// The bytes that have arrived, at least one; empty: the peer has closed.
  std::string receive();
  /// True if bytes have arrived that were not received yet, or if the peer has closed.
  bool is_readable() const;
  /// Reads until `text` has arrived, and returns everything up to its end; the bytes behind it are kept.
  std::string receive_until(std::string_view text);
  std::string receive_all();

  struct Response {
    int status = 0;  ///< 0: none came
    std::string head;
    std::string body;  ///< chunks joined

    /// Empty if the response has no such header.
    std::string header(std::string_view lower_case_name) const;
  };
  /// Reads one response. `head_only`: the response to a HEAD request.
  Response response(bool head_only = false);
  /// Sends a request, with a JSON body if there is one, and reads the response.
  Response request(std::string_view method, std::string_view path, std::string_view body = {},
                   std::string_view more_headers = {});
  static std::string request_text(std::string_view method, std::string_view path, std::string_view body = {},
                                  std::string_view more_headers = {});

 private:
  std::string chunked_body();

  int fd_;
  std::string buffer_;  ///< received, not returned yet
};

}  // namespace minfer
