#pragma once

#include "kernels/backend.h"
#include "kernels/program/program.h"

namespace minfer {

/// What a device does in fewer ops or smaller types than a model's program says, for steps of `tokens` tokens: its products decide
/// (Backend::takes_norm(), takes_fp8()). Values and ids stay, ops that others do are left out. For a rank alone.
Program fuse(Program program, const Backend& backend, int64_t tokens);

}  // namespace minfer
