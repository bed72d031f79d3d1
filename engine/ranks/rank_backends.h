#pragma once

#include <memory>
#include <vector>

#include "engine/options/engine_options.h"
#include "kernels/backend.h"
#include "models/decoder/weights/model_source.h"

namespace minfer {

/// True if options and machine lead to the CUDA backend.
bool uses_cuda(const EngineOptions& options);

/// The time that a rank waits for another one.
std::chrono::milliseconds rank_patience(const EngineOptions& options);

/// Makes the backends of this process's ranks, each on its own thread. The constructor makes what they have in common.
class RankBackends {
 public:
  /// Throws Error if the machine has too few devices. `source`: the whole model. GPUs of
  /// several processes wait for each other here, and if one finds an error, all throw it.
  RankBackends(const EngineOptions& options, const ModelSource& source, std::shared_ptr<RankFailure> failure);

  /// Makes a rank's backend. Any thread, once a rank. With several ranks it may wait for the others.
  std::unique_ptr<Backend> make(int32_t rank);
  /// The reader of the hardware counters of the rank's device, if the ranks are several threads; null: nothing reads them. Any thread.
  std::unique_ptr<CounterSampler> make_counters(int32_t rank) const;
  /// For processes, after their backends are gone and all work is done: waits for the others, and gives back what they share.
  void end_in_order();

 private:
  EngineOptions options_;
  DType activation_dtype_ = DType::f32;
  std::vector<std::unique_ptr<HostCommunicator>> communicators_;  ///< of CPU ranks
  std::shared_ptr<CudaRanks> cuda_ranks_;                         ///< of GPUs
};

}  // namespace minfer
