#pragma once

#include <memory>

#include "kernels/counters.h"

namespace minfer::cuda {

/// Hardware counters of device `device` (CUDA's number of it) by CUPTI's PM sampling. Sets an environment
/// variable that CUPTI reads when it is first called, so make it before anything else that uses CUPTI; nothing of CUPTI
/// is loaded or called before prepare(). In a build without CUPTI's headers prepare() says so.
///
/// An overflow of the hardware's buffer (256 MiB of host memory) loses the window; the next begin_window()
/// then switches sampling off and on, as prepare() does.
std::unique_ptr<CounterSampler> make_pm_sampler(int device);

}  // namespace minfer::cuda
