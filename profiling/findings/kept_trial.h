#pragma once

#include <cstdint>
#include <string>

namespace minfer {

/// Share of the time, or of the time for a token, that is saved.
struct MeasuredGain {
  double median = 0.0;
  double least = 0.0;  ///< over the turns
  double most = 0.0;
  int64_t turns = 0;  ///< 0: it did not run

  /// In every turn, and by more than runs of the same differ in any case.
  bool helped() const { return turns > 0 && least > 0.0 && median >= 0.02; }
  std::string text() const;  ///< "12 to 25 % (3 turns)"
};

/// What an option gave a recorded load that ran again, kept in its profile beside what a finding had promised.
struct KeptTrial {
  std::string option = {};   ///< "--threads 2"
  std::string beside = {};   ///< options that both sides ran with; empty: those of the record alone
  std::string finding = {};  ///< the rule that advised it; empty: none did, and nothing was estimated
  std::string figure = {};   ///< what the gain is of, a figure of a replay: "busy_s"
  bool is_fitted = false;    ///< the estimated range is likely_gain()
  double estimated = 0.0;    ///< Finding::gain, and its range
  double estimated_from = 0.0, estimated_to = 0.0;
  MeasuredGain gain = {};
  std::string error = {};  ///< why it did not run
  std::string device = {}, date = {};

  std::string text() const;  ///< "--threads 2: 12 to 25 % (3 turns) of the time with work, 2026-11-28"
  /// What a newer one takes the place of.
  bool is_of_same(const KeptTrial& other) const {
    return option == other.option && beside == other.beside && figure == other.figure;
  }
};

/// A figure of a replay for people: "time with work".
std::string words_of_figure(const std::string& figure);

}  // namespace minfer
