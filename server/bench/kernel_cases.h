#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/bench/kernel_case.h"
#include "models/decoder/weights/model_source.h"

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

}  // namespace minfer
