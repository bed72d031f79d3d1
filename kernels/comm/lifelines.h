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

/// A connection of the first rank's process with each of the others that carries nothing while all is well. When a process ends, its
/// system closes it, on any host, whatever the process was doing: so the others know within milliseconds, where MPI would wait, or
/// end their processes when they send to it. A process that fails says first why, which the first one passes on.
///
/// Made in three steps, since addresses travel by other means: the first rank makes listen(), the others connect(), it accept()s.
class Lifelines {
 public:
  /// `name_of`: a rank, for messages.
  Lifelines(Rank rank, std::shared_ptr<RankFailure> failure, std::function<std::string(int32_t)> name_of);
  ~Lifelines();
  Lifelines(const Lifelines&) = delete;
  Lifelines& operator=(const Lifelines&) = delete;

  /// Of the first rank: where the others find it, as text for connect(); empty if this system lets nobody in.
  std::string listen();
  /// Of the others: whether the first rank was reached at one of its addresses.
  bool connect(const std::string& where);
  /// Of the first rank: takes `count` connections in, and no more from then on. Returns how many came in time.
  int32_t accept(int32_t count);

  /// Watches from here on, on a thread of its own: a connection that ends, or says why, sets the failure, and the thread calls
  /// `on_failure`.
  void watch(std::function<void()> on_failure);
  /// Looks now. Any thread.
  void look();
  /// Tells the others that this rank has failed. Any thread.
  void tell(const std::string& why);
  /// From here on connections may end: all has been done.
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
  int wake_ = -1;  ///< ends a wait of the thread
  std::mutex mutex_;
  bool is_over_ = false;  ///< nobody watches any more
  std::vector<Peer> peers_;
  std::jthread thread_;
};

}  // namespace minfer
