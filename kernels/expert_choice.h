#pragma once

#include <cstdint>

#include "kernels/op_args.h"

namespace minfer {

/// Throws Error unless `used` of `experts` experts can be chosen in this way, with this bias (null: none).
void check_choice(const ExpertChoice& choice, const Weight& bias, int64_t experts, int32_t used);

}  // namespace minfer
