#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/ip/tcp.hpp>

#include "server/http/http_server.h"

namespace minfer {

class BodyShare;

/// One client's connection: reads a request, hands it over, sends the answer, and so on until either
/// side closes. I/O thread. The server owns it until close(); then the operations that still have to
/// end own it. The server's sweep checks deadlines, so that setting a deadline costs nothing.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Clock = std::chrono::steady_clock;

  /// `is_spare`: there are HttpLimits::max_connections other connections.
  Connection(HttpServer& server, boost::asio::ip::tcp::socket socket, bool is_spare);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void start();
  void check_deadline(Clock::time_point now);
  /// Closes unless a request has begun, or is probably on its way.
  void close_if_idle();
  /// True if closing it would lose nothing that is known.
  bool can_yield(Clock::time_point now) const;
  void close();
  /// True if it has a request whose answer is not sent yet.
  bool is_answering() const { return state_ == State::answering || state_ == State::flushing; }

 private:
  class Exchange;
  struct Reader;

  enum class State : uint8_t {
    idle,       ///< waits for a request's first byte
    reading,    ///< has some of a request
    answering,  ///< the handler has it
    flushing,   ///< the answer is complete but not sent
    lingering,  ///< all is sent; reads what the client still sends, so that closing does not destroy the
                ///< answer
    closed,
  };

  template <class Handler>
  auto guarded(Handler handler);

  void wait_for_request();
  void watch_client();
  void look_after_client();
  void on_readable();
  void read_header();
  void on_header(const boost::system::error_code& error);
  void read_body();
  void hand_over();
  void answer_early(HttpResponse response);
  void answer_error(int status, const std::string& message);
  std::optional<HttpFault> read_head();
  HttpRequest take_head();
  void make_exchange(HttpRequest request, bool http_1_0, std::unique_ptr<BodyShare> body_share);
  bool fail_reading(const boost::system::error_code& error);

  void send(std::string_view bytes);
  void write_some();
  void on_written(const boost::system::error_code& error, size_t count);
  void on_all_sent();
  void finish_answer();
  void linger();
  void discard();
  /// Leaves the list of yielding connections that it is in and joins another; null: none.
  void move_to(HttpServer::Yielding* list);
  void set_deadline(std::chrono::milliseconds timeout) { deadline_ = Clock::now() + timeout; }
  size_t num_unsent_bytes() const { return pending_.size() + writing_.size() - written_; }

  HttpServer& server_;  ///< not to be used once it is closed
  boost::asio::ip::tcp::socket socket_;
  std::string remote_;
  State state_ = State::idle;
  HttpServer::Yielding* list_ = nullptr;    ///< that it is in; null: none
  HttpServer::Yielding::iterator place_{};  ///< in that list
  Clock::time_point deadline_ = Clock::time_point::max();
  std::unique_ptr<Reader> reader_;  ///< while reading, and between requests if bytes of the next are in it
  std::shared_ptr<Exchange> exchange_;
  const bool is_spare_;
  bool timed_out_ = false;        ///< while reading; the read is being cancelled
  bool watching_ = false;         ///< a wait for readability is under way
  bool watching_errors_ = false;  ///< also waits for the end of a client that has closed its sending half
  bool keep_alive_ = true;
  bool has_served_ = false;  ///< it has served at least one request
  bool flush_posted_ = false;
  bool write_in_progress_ = false;
  std::vector<char> pending_;  ///< to be sent after writing_
  std::vector<char> writing_;
  size_t written_ = 0;        ///< bytes of writing_ that are sent
  size_t bytes_to_take_ = 0;  ///< bytes that the client must take until deadline_; 0: none
};

}  // namespace minfer
