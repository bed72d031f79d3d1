#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "models/chat/answer/delta_writer.h"
#include "models/chat/answer/values/tool_types.h"

namespace minfer::answer {

/// Names and headers of calls that are longer are none.
inline constexpr size_t kMaxNameBytes = 256;

/// What readers of calls work with. Both outlive them.
struct CallContext {
  DeltaWriter& out;
  const ToolTypes& tools;
};

/// Reads one region of calls: what stands behind the marker that opened it (CallOpening). Bytes come one by one, so the pieces in
/// which an answer arrives cannot matter.
class CallReader {
 public:
  enum class Step : uint8_t {
    more,    ///< the region goes on
    done,    ///< the byte ended it
    ended,   ///< it ended before unread() and the byte, which is not taken
    failed,  ///< the byte cannot stand here and is not taken: problem() says why
  };

  explicit CallReader(const CallContext& context) : out_(context.out), tools_(context.tools) {}
  virtual ~CallReader() = default;
  virtual Step push(char c) = 0;
  /// Nothing of a call is missing if the answer ends here.
  virtual bool may_end() const = 0;

  /// Bytes of a text under way that wait for what follows.
  virtual std::string_view held() const { return {}; }

  const std::string& unread() const { return unread_; }
  const std::string& problem() const { return problem_; }

 protected:
  Step fail_at(std::string_view expected, char found);
  Step end_before(std::string_view unread);

  DeltaWriter& out_;
  const ToolTypes& tools_;

 private:
  std::string unread_;
  std::string problem_;
};

}  // namespace minfer::answer
