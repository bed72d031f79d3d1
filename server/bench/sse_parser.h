#pragma once

#include <string>
#include <string_view>

namespace minfer {

/// Takes a stream of server-sent events apart, however its bytes are cut into pieces (WHATWG HTML, section
/// "Server-sent events"): lines end with LF, CRLF or CR, a line that begins with ':' is a comment, an empty
/// line ends an event. Only the data of events is kept; its lines are joined by LF. What stands behind the
/// last empty line is no event.
///
/// An event of one line that lies inside one piece, as nearly every one does, is handed on where it lies.
class SseParser {
 public:
  /// Calls on_data(std::string_view) for every event with data that ends within `piece`. The view holds
  /// during the call.
  template <class OnData>
  void feed(std::string_view piece, OnData on_data) {
    std::string_view data;
    while (!piece.empty()) {
      if (take_whole_event(piece, data)) {
        on_data(data);
      } else if (take_line(piece)) {
        on_data(std::string_view(data_));
        data_.clear();
      }
    }
  }

 private:
  /// Takes an event of one line from the front of `piece`, if there is one and nothing before it is open.
  bool take_whole_event(std::string_view& piece, std::string_view& data) const;
  /// Takes a line, or what there is of one. True if it ends an event, whose data is then in data_.
  bool take_line(std::string_view& piece);
  bool end_line();

  std::string line_;  ///< what came so far of a line
  std::string data_;  ///< of the event that is open
  bool has_data_ = false;
  bool after_cr_ = false;  ///< the last line ended with CR, to which an LF may still belong
};

}  // namespace minfer
