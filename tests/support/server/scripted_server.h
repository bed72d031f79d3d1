#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <string_view>
#include <thread>

namespace minfer::test {

/// A request as received, and the means to answer it byte for byte.
class ServedRequest {
 public:
  explicit ServedRequest(int socket) : socket_(socket) {}

  /// Reads a request's head and body. False if the client has closed the connection.
  bool read();
  /// Sends these bytes unchanged.
  void write(std::string_view bytes) const;
  /// Sends a whole response with a body of known length.
  void respond(int status, std::string_view body) const;
  /// Reads until the client has closed the connection.
  void wait_until_closed() const;
  /// The three parts of a chunked response.
  void begin_stream() const;
  void write_chunk(std::string_view bytes) const;
  void end_stream() const { write("0\r\n\r\n"); }

  /// The value of a header, empty if there is none. Names are compared with case.
  std::string header(const std::string& name) const;

  std::string head;    ///< request line and headers
  std::string target;  ///< e.g. "/v1/completions"
  std::string body;

 private:
  int socket_;
};

/// How a scripted server handles a request. Returns true to wait for another one on the connection, false
/// to close it. Called on the connection's own thread.
using Script = std::function<bool(ServedRequest&)>;

/// An HTTP server on a free port of 127.0.0.1 that answers by a script while it lives.
class ScriptedServer {
 public:
  explicit ScriptedServer(Script script);
  ~ScriptedServer();
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  std::string url() const;
  int num_connections() const { return num_connections_; }

 private:
  void accept_all();
  void serve(int socket);

  Script script_;
  int listener_;
  uint16_t port_ = 0;
  std::atomic<int> num_connections_ = 0;
  std::thread acceptor_;
  std::list<std::thread> connections_;
  std::list<int> sockets_;
};

/// A port of 127.0.0.1 on which nothing listens, and on which no other process can listen while this lives.
class BoundPort {
 public:
  BoundPort();
  ~BoundPort();
  BoundPort(const BoundPort&) = delete;
  BoundPort& operator=(const BoundPort&) = delete;

  uint16_t number() const { return number_; }

 private:
  int socket_;
  uint16_t number_ = 0;
};

/// A completion's event with one choice, whose text is `text`.
std::string text_event(std::string_view text);
/// The event at the end of a stream's output, with these counts.
std::string usage_event(int prompt_tokens, int completion_tokens);

/// Streams `num_tokens` events of a completion, then usage and [DONE], `gap_ms` apart.
void stream_completion(ServedRequest& request, int num_tokens, int gap_ms = 0);

}  // namespace minfer::test
