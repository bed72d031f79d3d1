#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>

#include "engine/engine.h"
#include "profiling/counters/counter_collector.h"
#include "profiling/counters/latest_counters.h"
#include "profiling/json/lines.h"
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

/// A profile's file and the sinks that fill it. The engine outlives it. attach(), add_memory() and detach() are for the engine's thread,
/// or between its steps.
class ProfileRecording {
 public:
  /// Told of failures, on the threads that write and that read counters.
  using Warn = std::function<void(std::string_view event, const std::string& reason)>;
  static constexpr std::string_view kNotTraced = "kernels are not traced";  ///< an event

  /// Reads hardware counters if `header` asks for them, which takes as long as switching them on does. `latest`: gets the windows too, and
  /// outlives this; null: nothing does. Throws FileError if the file cannot be opened.
  ProfileRecording(Engine& engine, const std::filesystem::path& path, ProfileHeader header, Warn warn,
                   const CollectorOptions& counters = {}, LatestCounters* latest = nullptr);

  /// Records these steps, both included, from now on; without counters also `margin` steps before and behind them.
  void attach(int64_t first_step, int64_t last_step, int64_t margin = 0);
  void add_range(RangeTrace trace) { writer_->add_range(std::move(trace)); }
  /// Writes the current use of memory, once, if the backend has memory of its own.
  void add_memory() noexcept;
  /// Ends the recording.
  void detach() noexcept;
  /// Writes the rest of the file. After detach(), or without attach().
  ProfileWriter::Stats close();

  const bool has_counters;
  // Once it is closed.
  std::optional<RangeLine> range;  ///< the traced one
  int64_t counter_windows = 0;     ///< read without an error
  std::string counters_error;      ///< of the ranks that have no counters

 private:
  Engine& engine_;
  bool has_memory_ = false;
  std::unique_ptr<ProfileWriter> writer_;
  std::unique_ptr<CounterCollector> collector_;  ///< null: there are no counters, or it is closed
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
  Engine& engine_;
  std::string path_, ceilings_key_;
  LatestCounters latest_counters_;
  std::unique_ptr<ProfileRecording> recording_;  ///< null: nothing is wanted
};

/// The part of a profile's header that says how this engine runs: everything that needs no measuring.
ProfileHeader describe_engine(Engine& engine);
/// The first line of a profile of this engine.
ProfileHeader make_profile_header(Engine& engine, ProfileDetail detail);

}  // namespace minfer
