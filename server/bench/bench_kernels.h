#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/options/engine_options.h"
#include "profiling/record/ceilings.h"
#include "profiling/report/text/table.h"
#include "server/bench/kernel_cases.h"

namespace minfer {

inline constexpr const char* kDefaultKernelModel = "synthetic:llama-3.1-8b:bf16";

/// The measurements of `minfer bench --kernels`.
struct KernelBenchOptions {
  std::string model;             ///< empty: kDefaultKernelModel
  std::vector<std::string> ops;  ///< empty: all of the model
  KernelSizes sizes;
  int32_t repetitions = 5;  ///< steps measured of each case; each runs the op many times
  bool counters = false;    ///< also read hardware counters for one run
};

/// One case and how long it took.
struct KernelResult {
  KernelCase kernel;
  DType weight_dtype = DType::f32;  ///< of the model's weights for the op; of activations if it has none
  std::vector<double> samples_us;   ///< of a run
  std::optional<double> cublas_us;  ///< fastest plain product by cuBLASLt, where that computes the same
  std::optional<OpCounters> counters = std::nullopt;

  double median_us() const;
};

struct KernelBench {
  std::string model;
  BackendInfo backend;
  Ceilings ceilings;
  std::vector<KernelResult> results;
  bool counted = false;        ///< KernelBenchOptions::counters
  std::string counters_error;  ///< why results from a certain one on have no counters

  /// Least time by the ceilings over the median; 0 without ceilings.
  double roofline(const KernelResult& result) const;
  /// "compute" or "memory", the larger of the two by the ceilings; without: "memory".
  std::string_view bound(const KernelResult& result) const;
};

/// Opens a model for one op's weights ("": none). A synthetic model makes no other weights.
std::unique_ptr<ModelSource> open_kernel_source(const std::string& model, std::string_view op);

/// Runs each op of a model by itself over many sizes, with one op's weights in memory at a
/// time. A run's time is from its begin to the begin of the next run, as in step records. Runs
/// follow each other in a CUDA graph, over cold operands. Throws Error naming an unknown op.
KernelBench run_kernel_bench(const KernelBenchOptions& options, const EngineOptions& engine);

Table kernel_table(const KernelBench& bench);
nlohmann::ordered_json kernel_json(const KernelBench& bench);

}  // namespace minfer
