#pragma once

#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "engine/engine.h"
#include "kernels/comm/process_group.h"
#include "server/commands/args/speculation_args.h"

namespace minfer {

/// The engine's options, meaning the same in every command that has them: a command offers only those that change something there.
struct EngineArgs {
  static constexpr const char* kModelGroup = "Model and memory";
  static constexpr const char* kServingGroup = "Serving";

  std::string model;  ///< empty: the embedded demo model
  EngineOptions options;
  std::string kv_cache_dtype = "auto";
  std::string dtype = "auto";
  std::string quantization = "none";
  std::string target_itl_ms = "0";
  SpeculationArgs speculation;

  /// What its weights become at load, where more than that is not wanted: add_device_options() has it too.
  static void add_quantization(CLI::App& command, std::string& quantization);
  static std::optional<DType> parse_quantization(const std::string& quantization);

  /// Where a model runs, and the memory of its steps and KV cache: every command with a model.
  void add_device_options(CLI::App& command);
  /// The same with the model itself, as an option and as the first argument.
  void add_model_options(CLI::App& command);
  /// How requests share the engine: commands that submit some.
  void add_serving_options(CLI::App& command);
  /// The order of service: commands whose requests differ in priority.
  CLI::Option* add_policy_option(CLI::App& command);

  /// `options` with everything parsed. Where a launcher started several processes, joins them first, as do the others. What fails then
  /// is told to the others: see told().
  EngineOptions engine_options() const;
  std::unique_ptr<ModelSource> open() const;
  /// With a progress line on a terminal. In a process of another rank than the first it follows that one to the end, and throws
  /// FollowedToEnd.
  std::unique_ptr<Engine> make_engine() const;

  /// Runs `work`, and has the other processes know if it throws.
  template <class Work>
  decltype(auto) told(Work work) const {
    try {
      return work();
    } catch (const std::exception& error) {
      if (processes_) processes_->fail(error.what());
      throw;
    }
  }
  /// Throws DeviceError if another process failed, where nobody else says so: after everything.
  void check_processes() const;
  /// Null: this process is alone. Once options are there.
  const ProcessGroup* processes() const { return processes_.get(); }

 private:
  void join() const;

  CLI::Option* ranks_option_ = nullptr;
  mutable std::shared_ptr<ProcessGroup> processes_;
};

/// For what runs in one process. Throws Error if a launcher started several.
void refuse_launcher(const std::string& what);

/// How tokens are drawn, for the commands that generate.
struct SamplingArgs {
  SamplingParams params;                ///< max_tokens 0: as many as the context takes
  std::vector<std::string> logit_bias;  ///< TOKEN=BIAS

  /// Greedy, to the end: what a person at a terminal can repeat.
  SamplingArgs() {
    params.temperature = 0.0f;
    params.max_tokens = 0;
  }
  void add_to(CLI::App& command);
  /// The parameters with everything parsed. Throws Error naming an option that cannot be understood.
  SamplingParams resolve(int32_t max_model_len) const;
};

}  // namespace minfer
