#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/bench/bench_remote.h"
#include "server/bench/bench_workload.h"
#include "server/bench/load_metrics.h"
#include "server/commands/args/option_group.h"

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

  /// Parses options that CLI11 leaves as text. Throws Error naming the option.
  void resolve();

 private:
  struct Sampling {
    std::optional<double> temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty;
    std::optional<int32_t> top_k;
  };

  void add_workload_options(CLI::App& command);
  void add_report_options(CLI::App& command);
  void add_server_options(CLI::App& command);
  void add_sampling_options(const OptionGroup& group, CLI::Option* base_url);
  void resolve_body();

  std::vector<std::string> goodput_;
  std::string extra_body_;
  Sampling sampling_;
};

}  // namespace minfer
