#pragma once

#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "engine/engine.h"
#include "kernels/comm/process_group.h"
#include "server/commands/args/options.h"

namespace minfer {

/// The engine's options. They mean the same in every command; a command offers only the options that change something there.
struct EngineArgs {
  static constexpr const char* kModelGroup = "Model and memory";
  static constexpr const char* kServingGroup = "Serving";

  std::string model;  ///< empty: the embedded demo model
  EngineOptions options;
  /// Makes drafts, if there are any, right with this chance, whatever the model, as a recorded load's were.
  std::optional<double> replayed_acceptance = {};

  /// Adds the type that weights become at load, for commands that want no more than that: add_device_options() includes it.
  static void add_quantization(CLI::App& command, std::optional<DType>& quantization);

  /// Adds where a model runs, and the memory of its steps and KV cache: for every command with a model.
  void add_device_options(CLI::App& command);
  /// Adds the same and the model itself, as an option and as the first argument.
  void add_model_options(CLI::App& command);
  /// Adds how requests share the engine: for commands that submit requests.
  void add_serving_options(CLI::App& command);
  /// Adds the order of service: for commands whose requests differ in priority.
  void add_policy_option(CLI::App& command);
  /// Adds an acceptance rate of drafts, for measurements with models of random weights.
  void add_synthetic_acceptance(CLI::App& command);

  /// `options` with the draft model opened. If a launcher started several processes, joins them first, as the others do. A
  /// failure after that is told to the others: see told(). Throws Error naming options that contradict each other.
  EngineOptions engine_options() const;
  std::unique_ptr<ModelSource> open() const;
  /// Makes the engine, with a progress line on a terminal. A process of another
  /// rank than the first follows that rank to the end and throws FollowedToEnd. `progress`: called instead of showing that line.
  std::unique_ptr<Engine> make_engine(const LoadProgress& progress = {}) const;

  /// Runs `work`, and tells the other processes if it throws.
  template <class Work>
  decltype(auto) told(Work work) const {
    try {
      return work();
    } catch (const std::exception& error) {
      if (processes_) processes_->fail(error.what());
      throw;
    }
  }
  /// Throws DeviceError if another process failed and nothing else says so. Call it last.
  void check_processes() const;
  /// The processes; null: this one is alone. Call it once options are there.
  const ProcessGroup* processes() const { return processes_.get(); }

 private:
  void add_speculation_options(const OptionGroup& group);
  SpeculationOptions speculation() const;
  void join() const;

  std::optional<SpeculationMethod> speculation_method_;  ///< absent: draft with a draft model, else off
  std::string draft_model_;
  CLI::Option* ranks_option_ = nullptr;
  mutable std::shared_ptr<ProcessGroup> processes_;
};

/// For commands that run in one process. Throws Error if a launcher started several.
void refuse_launcher(const std::string& what);

/// The sampling options of commands that generate.
struct SamplingArgs {
  SamplingParams params;  ///< max_tokens 0: as many as the context takes

  /// Greedy, to the end: results that a person at a terminal can repeat.
  SamplingArgs() {
    params.temperature = 0.0f;
    params.max_tokens = 0;
  }
  void add_to(CLI::App& command);
};

}  // namespace minfer
