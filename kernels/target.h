#pragma once

#include <span>
#include <string>

#include "kernels/shape_limits.h"
#include "kernels/tensor_view.h"

namespace minfer {

struct BackendInfo {
  std::string name;    ///< "cpu" or "cuda"
  std::string device;  ///< e.g. the processor's name, and its instruction set
  DType activation_dtype = DType::f32;
  int32_t threads = 1;
  int32_t steps_ahead = 0;      ///< steps that may be launched before the one in front of them has finished
  bool asynchronous = false;    ///< ops run beside the host: launching ahead pays
  bool copies_weights = false;  ///< load() is done with the host's bytes when it returns
  bool takes_masks = false;     ///< SamplingRow::allowed, and StepArgs::later_rows
  int64_t cache_bytes = 0;      ///< of the cache in front of the device's memory; 0: not known
  std::string device_id = {};   ///< of a GPU, see CudaDevice::id
  /// Of one of several ranks that has been prepared: how they add up, and what was measured to choose it.
  std::string all_reduce = {};
};

/// What a program is made for: keeps a model's weights, and says what its products take.
class Target {
 public:
  virtual ~Target() = default;
  virtual BackendInfo info() const = 0;
  /// What no op refuses.
  virtual ShapeLimits shape_limits() const { return {}; }
  /// Told of all weights before the first load(): a device reserves their memory as one piece.
  virtual void reserve_weights(std::span<const HostTensor> /*tensors*/) {}
  /// Makes a weight usable. Without BackendInfo::copies_weights it keeps pointing at the host's bytes, which must outlive it, unless the
  /// tensor has gaps or is quantised.
  virtual Weight load(const HostTensor& tensor) = 0;

  /// Whether x of so many tokens is to be fp8 in products with `weights`, as norm(), attention() and gate_up_swiglu() then write it,
  /// with a scale for each 128 columns of a token. `head_size`: of attention, if that writes x; else 0.
  virtual bool takes_fp8(std::span<const Weight> /*weights*/, int64_t /*tokens*/,
                         int32_t /*head_size*/) const {
    return false;
  }
  /// Whether linear() with `weights` and so many tokens, or gate_up_swiglu() with these two, takes x before its RMS norm (FrontNorm), which
  /// then costs no op of its own.
  virtual bool takes_norm(std::span<const Weight> /*weights*/, int64_t /*tokens*/) const { return false; }
};

}  // namespace minfer
