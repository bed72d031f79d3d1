#pragma once

#include <functional>
#include <memory>
#include <string>

#include "server/http/event_loop.h"
#include "server/http/http_message.h"

namespace minfer {

/// Answers with a body that is made while it is sent: `first_piece`, then the text that `next_piece`
/// appends to its argument, until it returns false. Background threads call `next_piece`, one call at a
/// time, and only when the client has taken most of the earlier text. So only a few pieces of a body of
/// any size are in memory. If it throws, the connection is closed. I/O thread; `loop` outlives the answer.
void send_in_pieces(TaskRunner& loop, const std::shared_ptr<HttpExchange>& exchange,
                    std::string_view first_piece, std::function<bool(std::string& text)> next_piece);

}  // namespace minfer
