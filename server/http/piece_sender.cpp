#include "server/http/piece_sender.h"

#include <exception>
#include <utility>

namespace minfer {
namespace {

/// Held by the task or the callback that is to go on with it, one at a time.
class PieceSender : public std::enable_shared_from_this<PieceSender> {
 public:
  PieceSender(EventLoop& loop, std::shared_ptr<HttpExchange> exchange,
              std::function<bool(std::string&)> next_piece)
      : loop_(loop), exchange_(std::move(exchange)), next_piece_(std::move(next_piece)) {}

  void begin(HttpResponse head, std::string_view first_piece) {
    exchange_->begin_stream(std::move(head));
    exchange_->write(first_piece);
    go_on();
  }

 private:
  void go_on() {
    if (exchange_->is_closed()) return;
    if (!exchange_->has_room()) return exchange_->on_room([self = shared_from_this()] { self->go_on(); });
    loop_.run_in_background([self = shared_from_this()] { self->make_piece(); });
  }

  /// On a background thread.
  void make_piece() {
    std::string piece;
    try {
      const bool more = next_piece_(piece);
      loop_.post([self = shared_from_this(), piece = std::move(piece), more] { self->send(piece, more); });
    } catch (const std::exception&) {
      loop_.post([self = shared_from_this()] { self->exchange_->abort(); });
    }
  }

  void send(const std::string& piece, bool more) {
    exchange_->write(piece);
    more ? go_on() : exchange_->end();
  }

  EventLoop& loop_;
  const std::shared_ptr<HttpExchange> exchange_;
  const std::function<bool(std::string&)> next_piece_;
};

}  // namespace

void send_in_pieces(EventLoop& loop, std::shared_ptr<HttpExchange> exchange, HttpResponse head,
                    std::string_view first_piece, std::function<bool(std::string&)> next_piece) {
  std::make_shared<PieceSender>(loop, std::move(exchange), std::move(next_piece))
      ->begin(std::move(head), first_piece);
}

}  // namespace minfer
