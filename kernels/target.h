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
  int32_t steps_ahead = 0;      ///< steps that may be launched before the step in front of them has finished
  bool asynchronous = false;    ///< ops run beside the host, so launching ahead pays
  bool copies_weights = false;  ///< load() no longer needs the host's bytes when it returns
  bool takes_masks = false;     ///< supports SamplingRow::allowed and StepArgs::later_rows
  int64_t cache_bytes = 0;      ///< size of the cache in front of the device's memory; 0: not known
  std::string device_id = {};   ///< of a GPU, see CudaDevice::id
  /// For one of several ranks, once prepared: how the ranks add up, and the measurements behind that choice.
  std::string all_reduce = {};
};

/// The target of a program: keeps a model's weights, and says what its products accept.
class Target {
 public:
  virtual ~Target() = default;
  virtual BackendInfo info() const = 0;
  /// The shapes that every op supports.
  virtual ShapeLimits shape_limits() const { return {}; }
  /// Announces all weights before the first load(), so that a device can reserve their memory as one piece.
  virtual void reserve_weights(std::span<const HostTensor> /*tensors*/) {}
  /// Makes a weight usable. Without BackendInfo::copies_weights the weight still points at the host's bytes, which must outlive it,
  /// unless the tensor has gaps or is quantised.
  virtual Weight load(const HostTensor& tensor) = 0;

  /// Returns whether products of `tokens` tokens with `weights` take x in fp8, as norm(), attention(), gate_up_swiglu() and
  /// head_gate() write it, with a scale for each 128 columns of a token. `head_size`: heads of the op that writes x; 0: it has none.
  virtual bool takes_fp8(std::span<const Weight> /*weights*/, int64_t /*tokens*/,
                         int32_t /*head_size*/) const {
    return false;
  }
  /// Returns whether linear() with `weights` and `tokens` tokens, or gate_up_swiglu() with these two weights, takes x before its RMS norm
  /// (FrontNorm). The norm then costs no op of its own.
  virtual bool takes_norm(std::span<const Weight> /*weights*/, int64_t /*tokens*/) const { return false; }
};

}  // namespace minfer
