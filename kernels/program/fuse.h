#pragma once

#include "kernels/program/program.h"
#include "kernels/target.h"

namespace minfer {

/// Moves norms into products and makes values FP8 if the target takes that with `tokens` tokens (Target::takes_norm(), takes_fp8()).
/// Values and ids stay the same; ops whose work moves into others are removed. For a program of a single rank.
Program fuse(Program program, const Target& target, int64_t tokens);

}  // namespace minfer
