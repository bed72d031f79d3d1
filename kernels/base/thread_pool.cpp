#include "kernels/base/thread_pool.h"

#include <algorithm>
#include <utility>

#include <pthread.h>
#include <sched.h>

#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "kernels/base/thread_names.h"

namespace minfer {
namespace {

constexpr int64_t kMostPieces = (1 << 30) - 1;  // threads that find no piece count further down

/// How long a thread keeps its core while it waits. Most ops that one thread runs alone are shorter.
constexpr int64_t kKeepNs = 10'000;
/// After kKeepNs it yields between two looks, until it sleeps. The engine's work between two steps is shorter.
constexpr int64_t kAwakeNs = 50'000;

/// Tells the processor that this thread waits for a word in memory to change.
void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Waits at most kAwakeNs for `is_met` to return true. Returns whether it did.
template <class Condition>
bool look_out(const Condition& is_met) {
  constexpr int kLooks = 8;  // between two looks at the clock
  const int64_t begin_ns = now_ns();
  for (int64_t waited_ns = 0; waited_ns < kAwakeNs; waited_ns = now_ns() - begin_ns) {
    if (waited_ns > kKeepNs) std::this_thread::yield();
    for (int i = 0; i < kLooks; ++i) {
      if (is_met()) return true;
      pause();
    }
  }
  return false;
}

size_t checked(int32_t threads) {
  if (threads < 1) fail("thread pool: {} threads, expected 1 or more", threads);
  return static_cast<size_t>(threads);
}

}  // namespace

int32_t num_cores() {
  cpu_set_t cores;
  if (::sched_getaffinity(0, sizeof cores, &cores) == 0) return std::max(1, CPU_COUNT(&cores));
  return static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
}

ThreadPool::ThreadPool(int32_t threads) : shares_(checked(threads)) {
  workers_.reserve(static_cast<size_t>(threads - 1));
  try {
    for (int32_t thread = 1; thread < threads; ++thread)
      workers_.emplace_back([this, thread] { work(thread); });
  } catch (const std::exception& error) {  // std::bad_alloc too: a started worker waits for a loop
    const size_t started = workers_.size() + 1;
    stop();
    fail("thread pool: the system gave {} threads of {}: {}", started, threads, error.what());
  }
}

void ThreadPool::stop() {
  stops_.store(true, std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  workers_.clear();  // joins
}

void ThreadPool::run(const Loop& loop) {
  if (loop.pieces < 0 || loop.pieces > kMostPieces) fail("thread pool: a loop of {} pieces", loop.pieces);
  if (is_running_.exchange(true, std::memory_order_relaxed)) fail("thread pool: a loop within a loop");
  loop_ = loop;
  if (loop.pieces > 1 && !workers_.empty()) {
    share();
  } else {
    for (int64_t piece = 0; piece < loop.pieces; ++piece)
      call_body(piece, 0);
  }
  is_running_.store(false, std::memory_order_relaxed);
  if (has_error_.exchange(false, std::memory_order_relaxed))
    std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::share() {
  unfinished_.store(static_cast<int32_t>(loop_.pieces), std::memory_order_relaxed);
  for (int32_t thread = 0; thread < threads(); ++thread) {
    const auto size = static_cast<int32_t>(share_of(thread).size());
    shares_[static_cast<size_t>(thread)].untaken.store(size, std::memory_order_release);
  }
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  take_pieces(0);
  await_unfinished();
}

/// A worker may arrive after the loop that it heard of has ended. Then it takes nothing, or pieces of the next loop.
void ThreadPool::take_pieces(int32_t thread) {
  int32_t taken = 0;
  for (int32_t i = 0; i < threads(); ++i)
    taken += take_share((thread + i) % threads(), thread);
  if (taken == 0) return;
  const bool is_last = unfinished_.fetch_sub(taken, std::memory_order_acq_rel) == taken;
  if (is_last && thread != 0) unfinished_.notify_one();
}

/// Runs on `thread` the rest of the share of `owner`; returns how many pieces it ran.
int32_t ThreadPool::take_share(int32_t owner, int32_t thread) {
  std::atomic<int32_t>& untaken = shares_[static_cast<size_t>(owner)].untaken;
  int32_t taken = 0;
  while (untaken.load(std::memory_order_relaxed) > 0) {
    const int32_t left = untaken.fetch_sub(1, std::memory_order_acquire);
    if (left <= 0) break;
    call_body(share_of(owner).end - left, thread);
    ++taken;
  }
  return taken;
}

void ThreadPool::call_body(int64_t piece, int32_t thread) {
  if (has_error_.load(std::memory_order_relaxed)) return;
  try {
    loop_.call(loop_.body, piece, thread);
  } catch (...) {
    if (!has_error_.exchange(true, std::memory_order_relaxed)) error_ = std::current_exception();
  }
}

void ThreadPool::await_unfinished() {
  int32_t unfinished = 0;
  const auto is_done = [&] { return (unfinished = unfinished_.load(std::memory_order_acquire)) == 0; };
  if (look_out(is_done)) return;
  while (!is_done())
    unfinished_.wait(unfinished, std::memory_order_acquire);
}

void ThreadPool::work(int32_t thread) {
  pthread_setname_np(pthread_self(), kPoolThreadName);
  for (uint32_t seen = 0; !stops_.load(std::memory_order_relaxed);) {
    await_round_after(seen);
    seen = round_.load(std::memory_order_acquire);
    take_pieces(thread);
  }
}

void ThreadPool::await_round_after(uint32_t seen) {
  const auto has_begun = [&] { return round_.load(std::memory_order_acquire) != seen; };
  if (!look_out(has_begun)) round_.wait(seen, std::memory_order_acquire);
}

}  // namespace minfer
