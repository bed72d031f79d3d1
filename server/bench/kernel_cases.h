#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/bench/kernel_case.h"
#include "models/decoder/weights/model_source.h"

namespace minfer {

/// Types of what an op reads and writes besides weights.
struct KernelTypes {
  DType activation = DType::f32;
  DType kv = DType::f32;
};

/// Which sizes to measure; empty lists: those that suit the device.
struct KernelSizes {
  std::vector<int32_t> tokens;    ///< M; attention_decode and sample: sequences
  std::vector<int32_t> contexts;  ///< attention_decode: cached tokens of a sequence
};

/// The names of the ops that a model of this shape has, as profiles have them (the norms are one), in the order of a step.
std::vector<std::string_view> kernel_op_names(const ModelConfig& config);

/// All cases of an op. Sizes are multiplied out where there are several, but for attention beyond 512 Ki cached tokens; attention has a
/// case for each window of the layers. `on_gpu` chooses between the default sizes. Throws Error naming an unknown op and the known ones.
std::vector<KernelCase> list_kernel_cases(const ModelConfig& config, const KernelTypes& types,
                                          std::string_view op, const KernelSizes& sizes, bool on_gpu);

/// The names of the tensors that an op reads, in the order in which they are loaded: of the model, or of a layer that has the type of most
/// layers where types are mixed. A model without an output matrix uses its embedding.
std::vector<std::string> kernel_tensor_names(const ModelSource& source, std::string_view op);
/// These tensors. Throws FileError if one is missing.
std::vector<HostTensor> kernel_tensors(const ModelSource& source, std::string_view op);

}  // namespace minfer
