#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace minfer {

/// The indices begin ... end - 1.
struct IndexRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
};

/// Part number `part` when the indices below `count` are cut into `parts` nearly equal parts.
inline IndexRange part_of(int64_t count, int64_t part, int64_t parts) {
  return {count * part / parts, count * (part + 1) / parts};
}

/// The number of cores that the calling thread may run on (its affinity: taskset, cpusets of containers), at least 1.
int32_t num_cores();

/// Threads that share loops of microseconds. Owned by the code that runs the loops, and called from one
/// thread at a time, which takes part.
///
/// A loop is cut into pieces. Each thread has a share of neighbouring pieces, the same share in every loop
/// with that number of pieces, so its cache often still holds the data that they read. A thread takes its own
/// pieces one by one, then the rest of the others'. The caller waits for taken pieces only. So a worker that
/// lost its core, or has not woken up yet, delays nobody, unless it holds a piece.
///
/// A worker without work looks for some for a few microseconds, then yields its core between two looks,
/// and soon sleeps. So it is there at once within a step and between two steps, gives way to threads that
/// have more to do, and costs nothing while there are no steps. The caller waits for the last pieces in
/// the same way.
class ThreadPool {
 public:
  /// Starts `threads` - 1 workers. Throws Error if `threads` is below 1 or the system refuses one.
  explicit ThreadPool(int32_t threads);
  ~ThreadPool() { stop(); }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// The caller and the workers.
  int32_t threads() const { return static_cast<int32_t>(shares_.size()); }

  /// Calls body(piece, thread) once for every piece from 0 to pieces - 1, in any order and on any thread.
  /// Returns after all calls; their writes are visible then. `thread` is from 0, the caller, to threads() -
  /// 1, and no two calls run with the same one at a time. A single piece runs on the caller. The first
  /// exception of a body is rethrown to the caller; pieces that begin after it are left out. Does not
  /// allocate. Throws Error if called while a loop runs, also from a body, and for 2^30 or more pieces.
  template <class Body>
  void parallel_for(int64_t pieces, const Body& body) {
    const auto call = [](const void* address, int64_t piece, int32_t thread) {
      (*static_cast<const Body*>(address))(piece, thread);
    };
    run({&body, call, pieces});
  }

 private:
  struct Loop {
    const void* body = nullptr;
    void (*call)(const void* body, int64_t piece, int32_t thread) = nullptr;
    int64_t pieces = 0;
  };

  /// The number of pieces of a thread's share that no thread has taken yet; below 0 after threads have looked in vain.
  struct alignas(64) Share {
    std::atomic<int32_t> untaken{0};
  };

  IndexRange share_of(int32_t thread) const { return part_of(loop_.pieces, thread, threads()); }
  void run(const Loop& loop);
  void share();
  void take_pieces(int32_t thread);
  int32_t take_share(int32_t owner, int32_t thread);
  void call_body(int64_t piece, int32_t thread);
  void await_unfinished();
  void work(int32_t thread);
  void await_round_after(uint32_t seen);
  void stop();

  Loop loop_;  ///< the caller writes it while no piece is unfinished; threads that took a piece read it
  std::exception_ptr error_;  ///< the exception that set has_error_
  std::atomic<bool> has_error_{false};
  std::atomic<bool> is_running_{false};
  std::atomic<bool> stops_{false};
  std::vector<Share> shares_;  ///< by thread
  // On cache lines of their own: idle workers read the first while the second changes.
  alignas(64) std::atomic<uint32_t> round_{0};      ///< counts the shared loops; workers sleep on it
  alignas(64) std::atomic<int32_t> unfinished_{0};  ///< pieces; the caller sleeps on it
  std::vector<std::jthread> workers_;
};

}  // namespace minfer
