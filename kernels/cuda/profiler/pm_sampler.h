#pragma once

#include <memory>

#include "kernels/counters.h"

namespace minfer::cuda {

/// Hardware counters of device `device` (CUDA's number) by CUPTI's PM sampling. It sets an environment variable
/// that CUPTI reads at its first call, so make it before anything else that uses CUPTI. It loads and calls
/// nothing of CUPTI before prepare(). In a build without CUPTI's headers prepare() says so.
///
/// An overflow of the hardware's buffer (256 MiB of host memory) loses the window. The next begin_window() then
/// switches sampling off and on, as prepare() does.
std::unique_ptr<CounterSampler> make_pm_sampler(int device);

}  // namespace minfer::cuda
