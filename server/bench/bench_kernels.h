#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/options/engine_options.h"
#include "kernels/bench/kernel_case.h"
#include "models/decoder/weights/model_source.h"
#include "profiling/record/ceilings.h"
#include "profiling/text/table.h"

namespace minfer {

/// Types of an op's operands other than weights.
struct KernelTypes {
  DType activation = DType::f32;
  DType kv = DType::f32;
};

/// The sizes to measure; empty lists: sizes that suit the device.
struct KernelSizes {
  std::vector<int32_t> tokens;    ///< M; attention_decode and sample: sequences
  std::vector<int32_t> contexts;  ///< attention_decode: cached tokens of a sequence
};

/// The ops of a model's program (models/decoder/emit/) that run by themselves: those of one layer, which has attention
/// and, where the model has them, experts, and those outside the layers. The plain RMS norms are one, "rms_norm".
class KernelOps {
 public:
  /// `source` needs only vectors' data, and outlives this. `quantization`: as in load_weights(), which throws the same.
  KernelOps(const ModelSource& source, const KernelTypes& types, std::optional<DType> quantization = {});

  /// In the order of a step.
  std::vector<std::string> names() const;
  /// All cases of an op. With several sizes, all combinations, but no attention beyond 512 Ki cached tokens; attention has a case for
  /// each window of the layers. `on_gpu` chooses between the default sizes. Throws Error naming an unknown op and the known ones.
  std::vector<KernelCase> cases(std::string_view op, const KernelSizes& sizes, bool on_gpu) const;
  /// The tensors that an op reads, in the order in which it names them, as they are loaded. Throws as cases().
  const std::vector<HostTensor>& tensors(std::string_view op) const { return find(op).tensors; }

 private:
  struct MeasuredOp {
    OpInfo info;
    std::vector<HostTensor> tensors;
  };
  const MeasuredOp& find(std::string_view op) const;

  const ModelConfig& config_;
  int32_t layer_;
  std::vector<std::vector<float>> converted_;  ///< data of tensors, see ModelWeights
  std::vector<MeasuredOp> ops_;
};

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
  DType weight_dtype = DType::f32;       ///< of the model's weights for the op; of activations if it has none
  std::vector<double> samples_us = {};   ///< of a run
  std::optional<double> cublas_us = {};  ///< fastest plain product by cuBLASLt, where that computes the same
  std::optional<OpCounters> counters = {};

  double median_us() const;
};

struct KernelBench {
  std::string model;
  BackendInfo backend = {};
  Ceilings ceilings = {};
  std::vector<KernelResult> results = {};
  bool counted = false;             ///< KernelBenchOptions::counters
  std::string counters_error = {};  ///< why results from a certain one on have no counters

  /// Least time by the ceilings over the median; 0 without ceilings.
  double roofline(const KernelResult& result) const;
  /// "compute" or "memory", the larger of the two by the ceilings; without: "memory".
  std::string_view bound(const KernelResult& result) const;
};

/// Runs each op of a model by itself over many sizes; one op's weights are in memory at a time. A run's time lasts to the begin of the next
/// run, as in step records. Runs follow each other in a CUDA graph, over cold operands. Throws Error naming an unknown op.
KernelBench run_kernel_bench(const KernelBenchOptions& options, const EngineOptions& engine);

Table kernel_table(const KernelBench& bench);
nlohmann::ordered_json kernel_json(const KernelBench& bench);

}  // namespace minfer
