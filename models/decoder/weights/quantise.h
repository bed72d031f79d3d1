#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/tensor_view.h"

namespace minfer {

/// The types to which the weights of layers can be converted at load.
inline constexpr DType kQuantizations[] = {DType::fp8};

/// Returns `tensor` as it should be loaded if the weights of layers become `type` (none: unchanged). A layer's matrix in F32, F16
/// or BF16 is marked (HostTensor::quantise_to); embeddings, norms, biases, routers of experts and the output head never are. With several
/// ranks, each quantises its own part. If that has only some columns of a row, the scale covers these, not the whole row. Throws
/// FileError naming a matrix whose rows are no multiple of kQuantisedColumns.
HostTensor to_load(HostTensor tensor, std::optional<DType> type, std::string_view model);
inline constexpr int64_t kQuantisedColumns = 32;

/// The same for all tensors. If no matrix of a layer can become `type`, throws Error naming the matrices' types.
std::vector<HostTensor> tensors_to_load(std::span<const HostTensor> tensors, std::optional<DType> type,
                                        std::string_view model);

}  // namespace minfer
