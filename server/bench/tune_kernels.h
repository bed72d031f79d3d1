#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/engine_options.h"
#include "kernels/tuning/kernel_table.h"
#include "profiling/report/text/table.h"
#include "server/bench/bench_kernels.h"

namespace minfer {

/// What `minfer bench --kernels --tune` found.
struct KernelTuning {
  struct Product {
    std::string op;
    cuda::KernelTableLine line;
  };

  std::string model;
  BackendInfo backend;
  cuda::PlanDevice device;
  std::vector<Product> products;
  std::vector<std::string> skipped;  ///< ops that were not tuned, and why

  cuda::KernelTable table() const;
};

/// Throws Error where tune_kernels() could not run: the device is no GPU, or there is a table already.
void require_tunable(const EngineOptions& engine);

/// Measures, for the products of a model with dense weights, every plan that could compute each (product_candidates()): as
/// run_kernel_bench() measures ops, once each, and those close to the fastest `repetitions` times more, in turn. Throws Error as
/// require_tunable() does, and for an op that is no such product.
KernelTuning tune_kernels(const KernelBenchOptions& options, const EngineOptions& engine);

Table tuning_table(const KernelTuning& tuning);
nlohmann::ordered_json tuning_json(const KernelTuning& tuning);

}  // namespace minfer
