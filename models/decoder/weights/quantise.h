#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/tensor_view.h"

namespace minfer {

/// The types that the weights of layers can be made at load.
inline constexpr DType kQuantizations[] = {DType::fp8};

/// `tensor` as it is to be loaded where the weights of layers become `type` (none: as they are). A matrix of a layer that is F32, F16
/// or BF16 is marked (HostTensor::quantise_to); embeddings, norms, biases, routers of experts and the output head never are. Of several
/// ranks each quantises the part that it has: where its columns are some of a row's, the scale is theirs, not the row's. Throws
/// FileError naming a matrix whose rows are no multiple of kQuantisedColumns.
HostTensor to_load(HostTensor tensor, std::optional<DType> type, std::string_view model);
inline constexpr int64_t kQuantisedColumns = 32;

/// All of them. Throws Error naming the types that the layers' matrices have if none of these can become `type`.
std::vector<HostTensor> tensors_to_load(std::span<const HostTensor> tensors, std::optional<DType> type,
                                        std::string_view model);

}  // namespace minfer
