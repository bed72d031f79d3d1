#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "profiling/counters/latest_counters.h"
#include "server/http/http_server.h"
#include "server/kv_events/kv_event_publisher.h"
#include "server/routes/access_rules.h"
#include "server/serving/completion/chat_renderer.h"

namespace minfer {

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  ///< 0: any that is free
  HttpLimits limits = {};
  AccessOptions access = {};
  std::vector<std::string> served_model_names = {};  ///< empty: the model's own; "*": and any other
  bool refuses_unknown_fields = false;               ///< in requests; else they are ignored
  std::string chat_template = {};                    ///< a file; empty: the model's own
  AnswerFormatOptions answer_format = {};
  int32_t max_queue_size = 2048;         ///< choices that may wait for a slot; beyond that: 429
  int64_t max_answer_bytes = 128 << 20;  ///< of JSON, as a request's fields let one expect
  /// A stream that has no event for this long gets a comment line, so that proxies keep it.
  std::chrono::milliseconds comment_interval{15'000};
  std::chrono::milliseconds shutdown_timeout{30'000};
  /// How long the last answers have to leave after the time of their requests is over, and then the last connections to close.
  std::chrono::milliseconds closing_timeout{1'000};
  std::chrono::milliseconds last_step_timeout{5'000};  ///< how long the engine's last step has to end
  std::chrono::milliseconds stall_timeout{120'000};    ///< without progress /health is not 200
  bool access_log = true;
  std::string profile_dir = ".";                ///< where /start_profile writes
  const LatestCounters* counters = nullptr;     ///< for /profile/summary; null: nothing. Outlives the server
  const KvEventPublisher* kv_events = nullptr;  ///< for /metrics; null: nothing. Outlives the server
};

}  // namespace minfer
