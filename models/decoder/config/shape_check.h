#pragma once

#include <string_view>

#include "kernels/shape_limits.h"
#include "models/decoder/weights/model_source.h"

namespace minfer {

/// Throws FileError naming the key or the tensor, what was expected and what was found, unless the ops of a
/// backend with these limits can run the model. `backend` names it in the message.
void check_shapes(const ModelSource& source, const ShapeLimits& limits, std::string_view backend);

}  // namespace minfer
