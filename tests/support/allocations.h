#pragma once

#include <cstdint>

namespace minfer::test {

/// Calls of operator new by this thread so far. A program that uses this gets a counting operator new.
uint64_t thread_allocations();

}  // namespace minfer::test
