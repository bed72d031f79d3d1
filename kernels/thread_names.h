#pragma once

namespace minfer {

/// Of a ThreadPool's workers, as the system lists threads.
inline constexpr const char* kPoolThreadName = "minfer-pool";

}  // namespace minfer
