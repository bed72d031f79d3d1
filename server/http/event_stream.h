#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "server/http/event_loop.h"
#include "server/http/http_message.h"

namespace minfer {

/// One text, made again and again and sent to all listeners as Server-Sent Events: made once for all of
/// them, and only while somebody listens. Every event is complete, so a client that does not keep up
/// misses some, and costs no more memory than HttpLimits::write_buffer_bytes and an event. I/O thread.
class EventStream {
 public:
  using Ready = std::function<void(const std::string& text)>;
  /// Makes a text of one line on other threads, and calls `ready` on the I/O thread, at once or later, with "" if that failed.
  using Make = std::function<void(Ready ready)>;

  /// Makes at most one text each `interval`. `loop` outlives this; this outlives what is made.
  EventStream(TaskRunner& loop, std::chrono::milliseconds interval, Make make)
      : loop_(loop), interval_(interval), make_(std::move(make)) {}

  /// Sends the client the newest event, if others listen, and all later events.
  void add(std::shared_ptr<HttpExchange> exchange) {
    exchange->begin_stream({.content_type = "text/event-stream; charset=utf-8",
                            .headers = {{"cache-control", "no-store"}, {"x-accel-buffering", "no"}}});
    if (ended_ || exchange->request().method == "HEAD") return exchange->end();
    if (num_clients() > 0) exchange->write(event_);
    clients_.push_back(std::move(exchange));
    if (!ticking_) tick();
  }
  /// Ends every stream, and at once every stream that is added later.
  void end() {
    ended_ = true;
    for (const auto& client : std::exchange(clients_, {}))
      client->end();
  }
  /// The number of streams whose client is not gone.
  size_t num_clients() {
    std::erase_if(clients_, [](const auto& client) { return client->is_closed(); });
    return clients_.size();
  }

 private:
  void tick() {
    ticking_ = num_clients() > 0;
    if (!ticking_) return event_.clear();
    make_([this](const std::string& text) {
      if (!text.empty()) {
        event_ = fmt::format("data: {}\n\n", text);
        for (const auto& client : clients_)
          if (client->has_room()) client->write(event_);
      }
      loop_.post_after(interval_, [this] { tick(); });
    });
  }

  TaskRunner& loop_;
  const std::chrono::milliseconds interval_;
  const Make make_;
  std::vector<std::shared_ptr<HttpExchange>> clients_;
  std::string event_;     ///< the newest, while somebody listens
  bool ticking_ = false;  ///< a text is being made, or a tick is due
  bool ended_ = false;
};

}  // namespace minfer
