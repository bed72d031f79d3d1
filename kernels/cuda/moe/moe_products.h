#pragma once

#include "kernels/cuda/choice/expert_choice.h"
#include "kernels/cuda/device/owners.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/moe/routes/moe_product.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// The products of experts with the memory they need. Owned by the backend; one thread at a time.
class MoeProducts {
 public:
  MoeProducts(const DeviceFacts& device, const StepLimits& limits);

  /// See MoeGateUpArgs. x and out bf16 or f32; gate and up of one type.
  void gate_up_swiglu(Launch& launch, const MoeGateUpArgs& args);
  /// See MoeDownArgs. hidden bf16 or f32; out f32.
  void down(Launch& launch, const MoeDownArgs& args);

 private:
  /// Tokens that are multiplied at a time, and how.
  struct Chunk {
    int64_t tokens = 0;
    ExpertChoice choice = {ExpertKernel::rows};
  };
  /// The last arguments of group_routes(), for the last routes of gate and up.
  struct Grouped {
    const int32_t* expert_ids = nullptr;
    int32_t num_routes = 0;
    int32_t experts = 0;
    int32_t batch_routes = 0;
    int32_t turn_routes = 0;
    bool operator==(const Grouped&) const = default;
  };
  /// The next chunk of the `tokens` that `rest` has.
  Chunk next_chunk(const MoeProduct& rest, int64_t tokens, int32_t experts_used) const;
  /// is_grouped: the product in front has grouped the routes, if it had the same batches.
  void multiply(Launch& launch, MoeProduct product, const Chunk& chunk, bool is_grouped);

  const DeviceFacts device_;
  Grouped grouped_;
  int64_t max_routes_ = 0;           ///< of a chunk
  int64_t max_streamed_routes_ = 0;  ///< the same for expert_stream_product(); 0: it is not used
  int64_t most_batches_ = 0;
  DeviceBuffer batches_;
  DeviceBuffer routes_;
  DeviceBuffer sorted_x_;
  /// [max_routes, hidden] f32 or [max_streamed_routes, hidden] bf16: products of down before they are summed over experts.
  DeviceBuffer products_;
};

}  // namespace minfer::cuda
