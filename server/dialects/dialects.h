#pragma once

#include <span>

#include "server/api/request/dialect.h"

namespace minfer {

/// All dialects that the server speaks.
std::span<const Dialect* const> dialects();

}  // namespace minfer
