#pragma once

#include <string>

#include "server/bench/bench_load.h"
#include "server/bench/bench_workload.h"
#include "server/bench/load_metrics.h"
#include "server/commands/args/engine_args.h"
#include "server/serving/profile/profile_session.h"

namespace minfer {

/// The options of load tests, with vLLM's names and meanings.
struct LoadArgs {
  static constexpr const char* kGroup =
      "Load test (with vLLM's names; chosen by --num-prompts, --dataset, --replay or --base-url)";
  static constexpr const char* kServerGroup = "Load test of a server";

  WorkloadOptions workload;
  LoadReportOptions report;
  bool save_result = false;
  bool save_detailed = false;
  std::string result_filename;

  RemoteOptions remote;  ///< model and stream_interval come from options of the engine's names
  std::string tokenizer;
  bool ignore_eos = false;
  double ready_check_timeout_s = 0.0;

  /// Adds all of them.
  void add_to(CLI::App& command);

  bool chosen() const { return workload.num_prompts > 0 || has_priorities() || is_remote(); }
  /// True if its requests may differ in priority: random prompts do not.
  bool has_priorities() const { return !workload.dataset.empty() || !workload.replay.empty(); }
  bool is_remote() const { return !remote.base_url.empty(); }

  /// Once the command line is parsed: sets what follows from several options. Throws Error naming the option.
  void resolve();

 private:
  void add_workload_options(const OptionGroup& group);
  void add_report_options(const OptionGroup& group);
  void add_server_options(CLI::App& command);
};

/// `minfer bench`'s load tests: they run the load, print the result in a format of `-o` and save it if asked
/// to. Both throw Error if no request was answered as it should be, and end the program after a Ctrl-C.

/// Tests the engine in this process.
void run_engine_load_test(const LoadArgs& args, const EngineArgs& engine, const ProfileArgs& profile,
                          const std::string& format);

/// Tests a server.
void run_server_load_test(const LoadArgs& args, const std::string& format);

}  // namespace minfer
