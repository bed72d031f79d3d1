#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "server/commands/args/engine_args.h"
#include "server/serving/model_pool.h"
#include "server/serving/server_options.h"

namespace minfer {

/// The models that `minfer serve` offers, and how many are loaded at once.
struct ServeModels {
  std::vector<std::string> specs;  ///< as --model gives them; with fewer than two, EngineArgs::model counts
  int32_t max_loaded = 0;          ///< 0: all
  int64_t memory_bytes = 0;        ///< for those that are loaded; 0: what is free at the start
  std::chrono::milliseconds unload_after{0};  ///< 0: never

  /// Adds --model and all options of the device, and those for several models. This and `engine` outlive the command.
  void add_to(CLI::App& command, EngineArgs& engine);
  bool are_several() const { return specs.size() > 1; }
  /// Reads the heads of several models, without their weights. Sets `engine` to the first one, with the KV cache's bytes that each
  /// model gets. One model: returns none. Throws Error naming an option that does not suit their number, or a model that cannot be read.
  ModelSet open(EngineArgs& engine, const ServerOptions& server, ServerLog& log) const;

 private:
  std::vector<CLI::Option*> options_;  ///< for several models only
  CLI::App* command_ = nullptr;
};

}  // namespace minfer
