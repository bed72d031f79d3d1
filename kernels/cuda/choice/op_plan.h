#pragma once

#include <string>

#include "kernels/cuda/device/device_facts.h"
#include "kernels/program/program.h"
#include "kernels/work.h"

/// How a GPU computes an op of a program, told before it runs: for people.
namespace minfer::cuda {

struct OpPlan {
  std::string kernel = {};  ///< as launches name it; "A + B" if weights are multiplied one after the other
  std::string tile = {};    ///< for products: rows of weights x tokens that a block multiplies at a time
  int64_t blocks = 0;       ///< of the first launch; 0: not planned in advance
  int32_t launches = 1;
  double us = 0.0;            ///< modelled: begin + max(bytes / rate, operations / rate) of each product
  int64_t scratch_bytes = 0;  ///< of the op itself, beside the program's values
};

/// `args`: of the variant for the tokens of `shape`; `info`: its row of the op table. Attention covers shape's sequences of
/// info.scope. Modelled times use this device's rates; only those of dense products are held against measurements (op_plan.cpp).
OpPlan plan_op(const OpArgs& args, const OpInfo& info, const BatchShape& shape, const DeviceFacts& device);

}  // namespace minfer::cuda
