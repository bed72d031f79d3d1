#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/comm/rank.h"
#include "kernels/comm/rank_failure.h"

namespace minfer {

/// Connections between the first rank's process and each of the others that carry nothing while all is well. When a process ends,
/// its system closes the connection, on any host, whatever the process was doing. So the others know within milliseconds; MPI would
/// wait, or end processes that send to it. A process that fails first says why, and the first rank's passes that on.
///
/// Made in three steps, because addresses travel by other means: the first rank calls listen(), the others connect(), the first accept().
class Lifelines {
 public:
  /// `name_of` names a rank, for messages.
  Lifelines(Rank rank, std::shared_ptr<RankFailure> failure, std::function<std::string(int32_t)> name_of);
  ~Lifelines();
  Lifelines(const Lifelines&) = delete;
  Lifelines& operator=(const Lifelines&) = delete;

  /// For the first rank: opens a port. Returns its address as text for connect(); empty if this system accepts no connections.
  std::string listen();
  /// For the others: returns whether the first rank was reached at one of its addresses.
  bool connect(const std::string& where);
  /// For the first rank: accepts `count` connections, and no more afterwards. Returns how many came in time.
  int32_t accept(int32_t count);

  /// Starts to watch, on a thread of its own. If a connection ends or brings a reason, that sets the failure, and the thread
  /// calls `on_failure`.
  void watch(std::function<void()> on_failure);
  /// Looks now. Any thread.
  void look();
  /// Tells the others that this rank has failed. Any thread.
  void tell(const std::string& why);
  /// Connections may end from now on: all work is done.
  void stop_watching();

 private:
  struct Peer {
    int32_t rank = 0;
    int socket = -1;
    std::string said;
  };

  void add(int32_t rank, int socket);
  void run(const std::stop_token& stop, const std::function<void()>& on_failure);
  void look(Peer& peer);
  void report(const Peer& peer);

  Rank rank_;
  std::shared_ptr<RankFailure> failure_;
  std::function<std::string(int32_t)> name_of_;
  std::string token_;
  int listener_ = -1;
  int wake_ = -1;  ///< ends the thread's wait
  std::mutex mutex_;
  bool is_over_ = false;  ///< nothing watches any more
  std::vector<Peer> peers_;
  std::jthread thread_;
};

}  // namespace minfer
