#pragma once

#include <cstdint>
#include <string>

namespace minfer {

/// The saved share of the time, or of the time for a token.
struct MeasuredGain {
  double median = 0.0;
  double least = 0.0;  ///< over the turns
  double most = 0.0;
  int64_t turns = 0;  ///< 0: the trial did not run

  /// True if it helped in every turn, and by more than repeated runs differ.
  bool helped() const { return turns > 0 && least > 0.0 && median >= 0.02; }
  std::string text() const;  ///< "12 to 25 % (3 turns)"
};

/// The measured effect of an option on a replayed load. The load's profile keeps it beside the gain that a finding had promised.
struct KeptTrial {
  std::string option = {};   ///< "--threads 2"
  std::string beside = {};   ///< further options of both sides; empty: only those of the record
  std::string finding = {};  ///< the rule that advised it; empty: none, so there is no estimate
  std::string figure = {};   ///< the figure of the replay that the gain is a share of: "busy_s"
  bool is_fitted = false;    ///< the estimated range is likely_gain()
  double estimated = 0.0;    ///< Finding::gain, and its range
  double estimated_from = 0.0, estimated_to = 0.0;
  MeasuredGain gain = {};
  std::string error = {};  ///< why the trial did not run
  std::string device = {}, date = {};

  std::string text() const;  ///< "--threads 2: 12 to 25 % (3 turns) of the time with work, 2026-11-28"
  /// True if the newer of both trials replaces the other.
  bool is_of_same(const KeptTrial& other) const {
    return option == other.option && beside == other.beside && figure == other.figure;
  }
};

/// The words for a figure of a replay: "time with work".
std::string words_of_figure(const std::string& figure);

}  // namespace minfer
