#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "server/http/event_loop.h"
#include "server/http/http_server.h"

namespace minfer {

/// An HTTP server for tests that throw bytes at it by the thousand: each input is the
/// bytes that one client sends before it closes its sending half. Everything happens inside answers_to(),
/// on the calling thread.
class HttpDriver {
 public:
  HttpDriver(HttpLimits limits, HttpHandler handler);
  ~HttpDriver();
  HttpDriver(const HttpDriver&) = delete;
  HttpDriver& operator=(const HttpDriver&) = delete;

  /// Returns everything that the server sends. `piece_bytes` > 0: the input arrives in pieces of
  /// that size. Throws std::logic_error if the server does not end the connection by itself.
  std::string answers_to(std::string_view input, size_t piece_bytes = 0);

 private:
  void run_ready();

  EventLoop loop_;
  HttpServer server_;
};

}  // namespace minfer
