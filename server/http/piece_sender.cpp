#include "server/http/piece_sender.h"

#include <exception>
#include <utility>

namespace minfer {
namespace {

/// The task or callback that goes on with the answer holds the exchange.
void send_rest(TaskRunner& loop, const std::shared_ptr<HttpExchange>& exchange,
               const std::shared_ptr<const std::function<bool(std::string&)>>& next_piece) {
  if (exchange->is_closed()) return;
  if (!exchange->has_room()) return exchange->on_room([=, &loop] { send_rest(loop, exchange, next_piece); });
  loop.run_in_background([=, &loop] {
    std::string piece;
    try {
      const bool more = (*next_piece)(piece);
      loop.post([=, &loop, piece = std::move(piece)] {
        exchange->write(piece);
        more ? send_rest(loop, exchange, next_piece) : exchange->end();
      });
    } catch (const std::exception&) {
      loop.post([exchange] { exchange->abort(); });
    }
  });
}

}  // namespace

void send_in_pieces(TaskRunner& loop, const std::shared_ptr<HttpExchange>& exchange,
                    std::string_view first_piece, std::function<bool(std::string&)> next_piece) {
  exchange->begin_stream({});
  exchange->write(first_piece);
  send_rest(loop, exchange, std::make_shared<const std::function<bool(std::string&)>>(std::move(next_piece)));
}

}  // namespace minfer
