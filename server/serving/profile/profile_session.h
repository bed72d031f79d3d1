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

/// The step records that go to a file. Memory keeps them in any case.
struct ProfileArgs {
  static constexpr const char* kGroup = "Profile";

  std::string out;                ///< empty: no file, unless a range is given
  std::string range;              ///< "A:B", both included
  std::string detail;             ///< "op" or "layer"; empty: op, with a range layer
  bool counters = false;          ///< read hardware counters, window after window
  int64_t margin = 0;             ///< steps before and behind the range that are written too
  double counters_every_s = 0.0;  ///< or one window each time this many seconds have passed; 0: not

  void add_to(CLI::App& command);
  /// For a program that runs on and on.
  void add_counters_every(CLI::App& command);
  bool wants_counters() const { return counters || counters_every_s > 0.0; }
  bool wanted() const { return !out.empty() || !range.empty() || wants_counters(); }
};

/// Writes an engine's step records to a file while it lives. With a range, writes its steps kernel by kernel where the backend
/// can. Writes hardware counters if they are wanted. Names the file on the terminal when it ends. Outlived by the engine.
class ProfileSession {
 public:
  /// Measures the machine's ceilings first if they are not cached, since the records
  /// are held against them. Call it before the engine's steps, or between them.
  ProfileSession(const ProfileArgs& args, Engine& engine);
  ~ProfileSession();
  ProfileSession(const ProfileSession&) = delete;
  ProfileSession& operator=(const ProfileSession&) = delete;

  const LatestCounters& counters() const { return latest_counters_; }

 private:
  void collect_counters(const ProfileArgs& args, int64_t first_step, int64_t last_step);
  /// Writes the memory's use once: at the range's end, if there is a range.
  void end_memory() noexcept;

  Engine& engine_;
  std::string path_, ceilings_key_;
  bool has_memory_at_end_ = false;  ///< is in the file or on its way; engine's thread
  std::string traced_;              ///< result of the range; set by the writer's thread
  std::unique_ptr<ProfileWriter> writer_;
  LatestCounters latest_counters_;
  std::unique_ptr<CounterCollector> collector_;
  int64_t num_windows_ = 0;  ///< of counters; the collector's thread, until that has ended
};

/// Makes the writer add the current use of memory to its file, if the backend
/// has memory of its own. On the engine's thread or between its steps.
void add_memory_at_end(ProfileWriter& writer, Engine& engine) noexcept;

/// The part of a profile's header that says how this engine runs: everything that needs no measuring.
ProfileHeader describe_engine(Engine& engine);

/// The first line of a profile of this engine.
ProfileHeader make_profile_header(Engine& engine, ProfileDetail detail);

}  // namespace minfer
