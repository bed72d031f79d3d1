#pragma once

#include <memory>
#include <vector>

#include "engine/options/engine_options.h"
#include "kernels/backend.h"
#include "models/decoder/weights/model_source.h"

namespace minfer {

/// Whether options and machine lead to the CUDA backend.
bool uses_cuda(const EngineOptions& options);

/// How long a rank waits for another one.
std::chrono::milliseconds rank_patience(const EngineOptions& options);

/// Makes the backends of the ranks of this process, each on its own thread. What they have in common is made with this.
class RankBackends {
 public:
  /// Throws Error if the machine has too few devices. `source`: the whole model. GPUs of several processes wait for each other here, and
  /// all throw what any of them finds.
  RankBackends(const EngineOptions& options, const ModelSource& source, std::shared_ptr<RankFailure> failure);

  /// Any thread, once a rank. Of several ranks it may wait for the others.
  std::unique_ptr<Backend> make(int32_t rank);
  /// What reads the hardware counters of the rank's device, of several ranks that are threads; null: nothing does. Any thread.
  std::unique_ptr<CounterSampler> make_counters(int32_t rank) const;
  /// Of processes, once their backends are gone and all has been done: waits for the others, and gives back what they share.
  void end_in_order();

 private:
  EngineOptions options_;
  DType activation_dtype_ = DType::f32;
  std::vector<std::unique_ptr<HostCommunicator>> communicators_;  ///< of CPU ranks
  std::shared_ptr<CudaRanks> cuda_ranks_;                         ///< of GPUs
};

}  // namespace minfer
