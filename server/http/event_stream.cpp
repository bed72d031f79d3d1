#include "server/http/event_stream.h"

#include <utility>

#include <fmt/format.h>

namespace minfer {

void EventStream::add(std::shared_ptr<HttpExchange> exchange) {
  exchange->begin_stream({.content_type = "text/event-stream; charset=utf-8",
                          .headers = {{"cache-control", "no-store"}, {"x-accel-buffering", "no"}}});
  if (ended_ || exchange->request().method == "HEAD") return exchange->end();
  if (num_clients() > 0) exchange->write(event_);
  clients_.push_back(std::move(exchange));
  if (!ticking_) tick();
}

void EventStream::end() {
  ended_ = true;
  for (const auto& client : std::exchange(clients_, {}))
    client->end();
}

size_t EventStream::num_clients() {
  std::erase_if(clients_, [](const auto& client) { return client->is_closed(); });
  return clients_.size();
}

void EventStream::tick() {
  ticking_ = num_clients() > 0;
  if (!ticking_) return event_.clear();
  make_([this](const std::string& text) {
    if (!text.empty()) send(text);
    loop_.post_after(interval_, [this] { tick(); });
  });
}

void EventStream::send(const std::string& text) {
  event_ = fmt::format("data: {}\n\n", text);
  for (const auto& client : clients_) {
    if (client->has_room()) client->write(event_);
  }
}

}  // namespace minfer
