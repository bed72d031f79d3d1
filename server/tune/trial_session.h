#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "profiling/record/kept_trial.h"
#include "server/bench/replay.h"
#include "server/terminal/terminal.h"

namespace minfer {

/// Options with which a load is run, added to its record's options, and the figures of each run.
struct Alternative {
  std::vector<std::string> options;       ///< e.g. {"--threads", "2"}; none: as recorded
  std::vector<nlohmann::json> runs = {};  ///< RequestFigures::json(), one a turn
  std::string error = {};                 ///< why it could not run: it has no further turn

  std::string text() const;  ///< "--threads 2", "as recorded"
};

/// Runs the load once and returns its figures. Throws Error if it cannot run with these options.
using RunLoad = std::function<nlohmann::json(const std::vector<std::string>& options)>;

/// Runs all alternatives in turns, so that drift of the machine meets each of them alike. At least one turn; then more, up to `most_turns`,
/// while `seconds_left()` is more than a turn takes. Throws what the first alternative throws; the others are compared with it.
void take_turns(std::span<Alternative> alternatives, const RunLoad& run, int most_turns,
                const std::function<double()>& seconds_left);

/// The gain of `other` by a figure: less is better ("busy_s"), or with `more_is_better` more ("output_throughput").
MeasuredGain measured_gain(const Alternative& base, const Alternative& other, std::string_view figure,
                           bool more_is_better = false);

/// For reports of programs: median, least, most, turns, helped.
nlohmann::ordered_json gain_json(const MeasuredGain& gain);

/// Seconds from a command line's text: "120", "120s", "2m".
double seconds_of(const std::string& option, const std::string& text);

/// "--threads 2" as a command line has it: {"--threads", "2"}.
std::vector<std::string> words_of(const std::string& trial);

/// The engine's options that were in force when a profile was recorded, as `minfer bench` and `minfer serve` take them.
std::vector<std::string> recorded_options(const ProfileHeader& header);

/// Runs a recorded load with options in turns, within a time. Each run is a process of its own, so that none inherits another's memory,
/// caches or threads. A line on the terminal shows the run. After Ctrl-C no further run begins.
class TrialSession {
 public:
  struct Options {
    std::string profile;
    std::string model = {};               ///< empty: the record's
    std::string speed = "1";              ///< of arrivals: a number or "inf"
    std::vector<std::string> bench = {};  ///< further options of bench, such as {"--goodput", "ttft:200"}
    double run_s = 0.0;     ///< requests that arrived later than this after the first are left out; 0: none
    double budget_s = 0.0;  ///< the time that all runs may take
  };

  /// Throws FileError for a profile whose load cannot be run again, Error for a model that must be named.
  explicit TrialSession(Options options);

  /// Runs the load with the options `base`, and with each trial's option beside them, as take_turns() does, for this share of the time
  /// left. After Ctrl-C the turn that runs is not counted. Sets the gains (see measured_gain()) and errors of the trials, and appends those
  /// that ran to the profile; if the file takes none, the terminal says so. Returns the runs: of `base`, then of each trial.
  std::vector<Alternative> compare(const std::vector<std::string>& base, std::vector<KeptTrial>& trials,
                                   int most_turns, double share, bool more_is_better = false);

  const RecordedLoad& load() const { return load_; }
  size_t num_requests() const { return num_requests_; }  ///< of a run
  bool interrupted() const { return interrupt_.interrupted(); }
  /// For people: "minfer serve MODEL", the options of the record, then these, which override them.
  std::string command_line(const std::vector<std::string>& options) const;

 private:
  /// Figures of one run: RequestFigures::json(), and "goodput" (requests a second) if
  /// it was asked for. If the program does not end well, throws Error with its message.
  nlohmann::json run(const std::vector<std::string>& options) const;
  void take(std::vector<Alternative>& alternatives, int most_turns, double share);
  void keep(const Alternative& base, std::vector<KeptTrial> trials);
  double seconds_left() const;

  Options options_;
  RecordedLoad load_;
  std::string model_;
  size_t num_requests_ = 0;
  int64_t begin_ns_;
  uintmax_t profile_bytes_;
  InterruptWatch interrupt_;
};

}  // namespace minfer
