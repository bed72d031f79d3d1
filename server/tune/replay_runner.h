#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "profiling/json/profile_header.h"
#include "server/bench/replay/recorded_load.h"

namespace minfer {

/// The engine's options that were in force when a profile was recorded, as `minfer bench` and `minfer serve` take them.
std::vector<std::string> recorded_options(const ProfileHeader& header);

/// Runs a recorded load again, each time in a process of its own: no run inherits another's memory, caches or threads.
class ReplayRunner {
 public:
  struct Options {
    std::string profile;
    std::string model = {};               ///< empty: the record's
    std::string speed = "1";              ///< of arrivals: a number or "inf"
    std::vector<std::string> bench = {};  ///< further options of bench, such as {"--goodput", "ttft:200"}
    double run_s = 0.0;  ///< requests that arrived later than this after the first are left out; 0: none
  };

  /// Throws FileError for a profile whose load cannot be run again, Error for a model that must be named.
  explicit ReplayRunner(Options options);

  /// Figures of one run: RequestFigures::json(), and "goodput" (requests a second) if
  /// it was asked for. If the program does not end well, throws Error with its message.
  nlohmann::json run(const std::vector<std::string>& options, double timeout_s) const;

  size_t num_requests() const { return num_requests_; }
  const RecordedLoad& load() const { return load_; }
  /// For people: "minfer serve MODEL", the options of the record, then these, which override them.
  std::string command_line(const std::vector<std::string>& options) const;

 private:
  Options options_;
  RecordedLoad load_;
  std::string model_;
  size_t num_requests_ = 0;
};

}  // namespace minfer
