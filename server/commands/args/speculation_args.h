#pragma once

#include <optional>
#include <string>

#include "engine/options/speculation_options.h"
#include "engine/request/request.h"
#include "server/commands/args/option_group.h"

namespace minfer {

/// The options of speculative decoding.
class SpeculationArgs {
 public:
  void add_to(const OptionGroup& options);
  /// Adds the option for measurements with models of random weights.
  void add_synthetic_acceptance(const OptionGroup& options);
  /// Makes drafts, if there are any, right with this chance, whatever the model, as a recorded load's were.
  void replay_acceptance(std::optional<double> chance) { replayed_acceptance_ = chance; }
  /// The options with everything parsed, and the draft model opened, for the
  /// model `model`. Throws Error naming options that contradict each other.
  SpeculationOptions resolve(const std::string& model) const;

 private:
  SpeculationOptions options_;
  std::string model_;
  std::optional<double> replayed_acceptance_;
  CLI::Option* method_option_ = nullptr;
  CLI::Option* model_option_ = nullptr;
};

/// The result of drafts, for a line that sums up a run: "31 of 60 draft tokens accepted, 2.6 tokens a check".
std::string describe(const SpeculationCounts& counts);

}  // namespace minfer
