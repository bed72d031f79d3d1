#pragma once

#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "engine/engine.h"

namespace minfer {

/// The engine's options, meaning the same in every command that has them: a command offers only those that
/// change something there.
struct EngineArgs {
  static constexpr const char* kModelGroup = "Model and memory";
  static constexpr const char* kServingGroup = "Serving";

  std::string model;  ///< empty: the embedded demo model
  EngineOptions options;
  std::string kv_cache_dtype = "auto";
  std::string dtype = "auto";

  /// Where a model runs, and the memory of its steps and KV cache: every command with a model.
  void add_device_options(CLI::App& command);
  /// The same with the model itself, as an option and as the first argument.
  void add_model_options(CLI::App& command);
  /// How requests share the engine: commands that submit some.
  void add_serving_options(CLI::App& command);
  /// The order of service: commands whose requests differ in priority.
  CLI::Option* add_policy_option(CLI::App& command);

  /// `options` with everything parsed.
  EngineOptions engine_options() const;
  /// Opens the model, with a progress line on a terminal.
  std::unique_ptr<ModelSource> open() const;
  std::unique_ptr<Engine> make_engine() const;
};

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
