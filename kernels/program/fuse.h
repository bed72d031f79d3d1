#pragma once

#include "kernels/backend.h"
#include "kernels/program/program.h"

namespace minfer {

/// Moves norms into products and makes values FP8 where the backend takes that with `tokens` tokens (Backend::takes_norm(), takes_fp8()).
/// Values and ids stay the same; ops that others now do are removed. For a rank alone.
Program fuse(Program program, const Backend& backend, int64_t tokens);

}  // namespace minfer
