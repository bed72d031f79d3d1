#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/shape_limits.h"
#include "kernels/tensor_view.h"

/// What surrounds the products of experts. A slot is one of the experts_used choices of a token: slot
/// token * experts_used + rank.
namespace minfer::cuda {

/// Slots of one expert that are multiplied together: slots[first], ..., slots[first + count - 1].
struct ExpertBatch {
  int32_t expert;
  int32_t first;
  int32_t count;
};

/// Device memory that group_slots() fills.
struct SlotGroups {
  ExpertBatch* batches = nullptr;
  int32_t* num_batches = nullptr;
  int32_t* slots = nullptr;  ///< [num_slots] those of one expert side by side
};

/// The most batches of up to `batch_slots` slots that `num_slots` slots of `experts` experts can make.
constexpr int32_t most_batches(int32_t num_slots, int32_t experts, int32_t batch_slots) {
  const int32_t most = num_slots / batch_slots + experts;
  return most < num_slots ? most : num_slots;
}

/// Sorts slots by expert. expert_ids [num_slots].
void group_slots(Launch& launch, const int32_t* expert_ids, int32_t num_slots, int32_t experts,
                 int32_t batch_slots, const SlotGroups& groups);

/// out[t] += sum over j in order of weights[t, j] * products[t * used + j]; products [slots, out.cols] f32,
/// out f32.
void combine_slots(Launch& launch, const float* products, const float* weights, int32_t used,
                   const Tensor& out);

}  // namespace minfer::cuda
