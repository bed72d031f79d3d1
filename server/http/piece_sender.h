#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "server/http/event_loop.h"
#include "server/http/http_message.h"

namespace minfer {

/// Goes on with an answer that has begun, by a body that is made while it is sent: the text that `next_piece` appends to its argument,
/// until it returns false. Background threads call `next_piece`, one call at a time, and only when the client has taken most
/// of the earlier text. So only a few pieces of a body of any size are in memory. If it throws, the connection is closed. I/O thread;
/// `loop` outlives the answer. The task or callback that goes on with the answer holds the exchange.
inline void send_in_pieces(TaskRunner& loop, const std::shared_ptr<HttpExchange>& exchange,
                           const std::function<bool(std::string& text)>& next_piece) {
  if (exchange->is_closed()) return;
  if (!exchange->has_room())
    return exchange->on_room([=, &loop] { send_in_pieces(loop, exchange, next_piece); });
  loop.run_in_background([=, &loop] {
    std::string piece;
    try {
      const bool more = next_piece(piece);
      loop.post([=, &loop, piece = std::move(piece)] {
        exchange->write(piece);
        more ? send_in_pieces(loop, exchange, next_piece) : exchange->end();
      });
    } catch (const std::exception&) {
      loop.post([exchange] { exchange->abort(); });
    }
  });
}

}  // namespace minfer
