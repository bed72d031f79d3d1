#pragma once

namespace minfer {

/// The name under which the system lists the workers of a ThreadPool.
inline constexpr const char* kPoolThreadName = "minfer-pool";

}  // namespace minfer
