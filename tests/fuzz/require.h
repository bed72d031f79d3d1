#pragma once

#include <cstdio>
#include <cstdlib>

/// Ends a fuzz target if a condition does not hold, and names the condition: libFuzzer keeps the input.
#define REQUIRE(condition)                                                 \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                        \
    }                                                                      \
  } while (false)
