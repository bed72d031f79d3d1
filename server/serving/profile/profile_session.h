#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>

#include "engine/engine.h"
#include "profiling/counters/counter_collector.h"
#include "profiling/counters/latest_counters.h"
#include "profiling/json/profile_writer.h"

namespace minfer {

/// First and last step of "A:B" with 0 <= A <= B, both included; `option` names it in errors.
std::pair<int64_t, int64_t> parse_step_range(std::string_view option, const std::string& text);

/// What of the step records goes to a file. They are kept in memory in any case.
struct ProfileArgs {
  static constexpr const char* kGroup = "Profile";

  std::string out;                ///< empty: no file, unless a range is given
  std::string range;              ///< "A:B", both included
  std::string detail;             ///< "op" or "layer"; empty: op, with a range layer
  bool counters = false;          ///< read hardware counters, window after window
  int64_t margin = 0;             ///< steps before and behind the range that are written too
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
  /// The first time: what is written then is when the range ended, if there is one.
  void end_memory() noexcept;

  Engine& engine_;
  std::string path_, ceilings_key_;
  bool has_memory_at_end_ = false;  ///< is in the file or on its way; engine's thread
  std::string traced_;              ///< what came of the range; set by the writer's thread
  std::unique_ptr<ProfileWriter> writer_;
  LatestCounters latest_counters_;
  std::unique_ptr<CounterCollector> collector_;
  int64_t num_windows_ = 0;  ///< of counters; the collector's thread, until that has ended
};

/// Has the writer put what the memory is used for now into its file, if the backend has some of its own. On the engine's thread or
/// between its steps.
void add_memory_at_end(ProfileWriter& writer, Engine& engine) noexcept;

/// What of a profile's header says how this engine runs: all that needs no measuring.
ProfileHeader describe_engine(Engine& engine);

/// What a profile of this engine says in its first line.
ProfileHeader make_profile_header(Engine& engine, ProfileDetail detail);

}  // namespace minfer
