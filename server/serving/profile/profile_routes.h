#pragma once

#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "profiling/summary/live_profile.h"
#include "server/http/event_stream.h"
#include "server/routes/router.h"
#include "server/serving/profile/profile_capture.h"
#include "server/serving/profile/profile_summary.h"

namespace minfer {

/// GET /profile/steps, /profile/summary, /profile/requests and /profile/events, POST /start_profile and /stop_profile. I/O thread.
///
/// Views are computed in the background, one at a time, so that parsing of requests always has
/// threads left. Few views wait or are being sent at a time, so that they never take much memory.
class ProfileRoutes {
 public:
  /// `header`: of detail `op`. `folder`: where /start_profile writes.
  ProfileRoutes(const ProfileSources& sources, ProfileHeader header, const std::filesystem::path& folder);

  /// Adds the routes. `choose`: whose profile a request asks for; it throws ApiError. `keeps`: until the exchange goes.
  static void add_to(Api& api, std::function<ProfileRoutes&(HttpExchange& exchange, bool keeps)> choose);
  /// Tells listeners that there is no more to come.
  void end_streams() { events_.end(); }

 private:
  using View = std::function<std::string()>;
  /// A view that is to be computed.
  struct Task {
    View view;
    std::shared_ptr<HttpExchange> exchange;  ///< gets the view; null: the listeners do
    EventStream::Ready ready;                ///< of the listeners
  };

  /// `?last=N&since=STEP`: the last N steps (default 100), or only those of them behind STEP.
  View steps_view(const HttpRequest& request);
  /// `?last=N`: the sums of the last N steps (default 1,000).
  View summary_view(const HttpRequest& request);
  /// `?id=ID`: as `minfer profile requests -o json`: the 100 slowest kept requests, or the 100 slowest of one id.
  View requests_view(const HttpRequest& request);
  void answer_with(std::shared_ptr<HttpExchange> exchange, View view);
  void make_event(EventStream::Ready ready);
  void compute_next();

  const ProfileSources sources_;
  const std::string ceilings_key_;
  LiveProfile profile_;          ///< background, one view at a time
  bool told_of_beaten_ = false;  ///< likewise
  ProfileCapture capture_;
  std::deque<Task> waiting_;
  bool computing_ = false;
  std::vector<std::weak_ptr<HttpExchange>> unsent_;  ///< views that wait, are computed or being sent
  PageEvents page_;                                  ///< background, as profile_
  EventStream events_;
};

}  // namespace minfer
