#pragma once

#include <string>

#include "kernels/cuda/device/device_facts.h"
#include "kernels/program/program.h"
#include "kernels/work.h"

/// How an op of a program is computed on a GPU, before it runs: for people.
namespace minfer::cuda {

struct OpPlan {
  std::string kernel = {};  ///< as launches name it; of weights multiplied one after the other "A + B"
  std::string tile = {};    ///< rows of weights x tokens that a block multiplies at a time, of products
  int64_t blocks = 0;       ///< of the first launch; 0: not planned in advance
  int32_t launches = 1;
  double us = 0.0;            ///< modelled: begin + max(bytes / rate, operations / rate) of each product
  int64_t scratch_bytes = 0;  ///< of its own, beside the program's values
};

/// `args` of the variant for the tokens of `shape`, `info` its row of the op table. Attention: of shape's sequences of info.scope.
/// Modelled times are at this device's rates; those of dense products alone are held against measurements (op_plan.cpp).
OpPlan plan_op(const OpArgs& args, const OpInfo& info, const BatchShape& shape, const DeviceFacts& device);

}  // namespace minfer::cuda
