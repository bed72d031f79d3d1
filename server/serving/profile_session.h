#pragma once

#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "engine/engine.h"
#include "profiling/counters/counter_collector.h"
#include "profiling/counters/latest_counters.h"
#include "profiling/json/profile_writer.h"

namespace minfer {

/// What of the step records goes to a file. They are kept in memory in any case.
struct ProfileArgs {
  static constexpr const char* kGroup = "Profile";

  std::string out;                ///< empty: no file, unless a range is given
  std::string range;              ///< "A:B", both included
  std::string detail;             ///< "op" or "layer"; empty: op, with a range layer
  bool counters = false;          ///< read hardware counters, window after window
  double counters_every_s = 0.0;  ///< or one window every so many seconds; 0: not

  void add_to(CLI::App& command);
  /// Of a program that goes on and on.
  void add_counters_every(CLI::App& command);
  bool wants_counters() const { return counters || counters_every_s > 0.0; }
  bool wanted() const { return !out.empty() || !range.empty() || wants_counters(); }
};

/// Writes an engine's step records to a file while it lives, with a range the steps in it kernel by kernel where the backend can, and
/// what hardware counters say if they are wanted; names the file on the terminal when it ends. Outlived by the engine.
class ProfileSession {
 public:
  /// Measures the machine's ceilings first if they are not cached, since the records are held against them. Before the
  /// engine's steps, or between them.
  ProfileSession(const ProfileArgs& args, Engine& engine);
  ~ProfileSession();
  ProfileSession(const ProfileSession&) = delete;
  ProfileSession& operator=(const ProfileSession&) = delete;

  const LatestCounters& counters() const { return latest_counters_; }

 private:
  void collect_counters(const ProfileArgs& args, int64_t first_step, int64_t last_step);
  void write(const CounterWindow& window);

  Engine& engine_;
  std::string path_;
  std::string traced_;  ///< what came of the range; set by the writer's thread
  std::unique_ptr<ProfileWriter> writer_;
  LatestCounters latest_counters_;
  std::unique_ptr<CounterCollector> collector_;
  int64_t num_windows_ = 0;  ///< of counters; the collector's thread, until that has ended
};

/// What a profile of this engine says in its first line.
ProfileHeader make_profile_header(Engine& engine, ProfileDetail detail);

}  // namespace minfer
