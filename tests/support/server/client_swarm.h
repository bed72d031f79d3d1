#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/wait.h"

namespace minfer {

/// How a client leaves before its answer has come.
enum class Leave : uint8_t { close, reset, shut_sending };

/// One of many clients that talk to a server at once, and what it received.
struct SwarmClient {
  std::string request = {};  ///< all that it sends; it asks for the connection to be closed
  std::chrono::milliseconds starts_after{0};
  std::chrono::milliseconds byte_interval{0};  ///< > 0: it sends a byte at a time, at this interval,
  size_t dribbles_after = 0;                   ///< after it has sent this many bytes at once
  // It leaves when it reaches the first of these.
  size_t leaves_after_sending = SIZE_MAX;    ///< bytes
  size_t leaves_after_receiving = SIZE_MAX;  ///< bytes
  std::chrono::milliseconds leaves_after{std::chrono::hours(1)};
  Leave leave = Leave::close;

  std::string received = {};
  std::vector<int64_t> received_at_ns = {};  ///< when each piece came
  bool left = false;                         ///< it left before the server closed the connection
  bool was_reset = false;                    ///< the server, or the kernel for it, reset the connection
  bool refused = false;                      ///< nothing listened
  bool timed_out = false;                    ///< it was still waiting when the swarm ended
};

/// Runs all clients from this thread until each has left or was left by the server, or until `timeout`.
void run_swarm(uint16_t port, std::vector<SwarmClient>& clients,
               std::chrono::milliseconds timeout = test::kPatience);

/// A response as received over a connection.
struct ReceivedResponse {
  int status = 0;  ///< 0: none came
  std::string head = {};
  std::string body = {};  ///< chunks joined
  bool complete = false;  ///< to its last byte
};
ReceivedResponse parse_response(const std::string& received);

/// The content of a streamed completion's events.
struct StreamedText {
  std::string text = {};    ///< of all choices
  std::string finish = {};  ///< finish_reason
  std::string error = {};   ///< message of the error event
  bool done = false;        ///< the last event was [DONE]
};
StreamedText parse_events(const std::string& body);

}  // namespace minfer
