#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/terminal/terminal.h"
#include "server/tune/replay_runner.h"
#include "server/tune/turns.h"

namespace minfer {

/// Seconds from a command line's text: "120", "120s", "2m".
double seconds_of(const std::string& option, const std::string& text);

/// "--threads 2" as a command line has it: {"--threads", "2"}.
std::vector<std::string> words_of(const std::string& trial);

/// Runs a recorded load with options in turns, within a time. A line on the terminal shows the run. After Ctrl-C no further run begins.
class TrialSession {
 public:
  TrialSession(ReplayRunner::Options options, double budget_s);

  /// As take_turns(), for this share of the time left. After Ctrl-C the turn that runs is not counted.
  void take(std::vector<Alternative>& alternatives, int most_turns, double share);

  /// Appends to the profile the results of trials against `base` on this device, without trials
  /// for which there was no time. If the file takes none, the terminal says so; that is no error.
  void keep(const Alternative& base, std::vector<KeptTrial> trials);

  const ReplayRunner& runner() const { return runner_; }
  bool interrupted() const { return interrupt_.interrupted(); }
  double seconds_left() const;

 private:
  ReplayRunner runner_;
  int64_t begin_ns_;
  double budget_s_;
  uintmax_t profile_bytes_;
  InterruptWatch interrupt_;
};

}  // namespace minfer
