#pragma once

#include <set>
#include <string>
#include <vector>

#include "server/http/http_message.h"
#include "server/serving/server_log.h"

namespace minfer {

/// Says which fields of a request were ignored: in a header of the answer each time, and in the log once for
/// each field, lest a client that always sends it fill the log. I/O thread.
class IgnoredFields {
 public:
  /// `log` outlives it.
  explicit IgnoredFields(ServerLog& log) : log_(log) {}

  /// `names`: of UnknownFields. Before the answer begins.
  void tell(HttpExchange& exchange, const std::vector<std::string>& names);

 private:
  ServerLog& log_;
  std::set<std::string> logged_;  ///< a bounded number: clients choose the names
};

}  // namespace minfer
