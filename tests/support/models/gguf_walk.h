#pragma once

#include <cstdint>

#include "models/gguf/gguf.h"

namespace minfer::test {

/// Reads every value through every getter, and every byte of every tensor. Returns a sum of all, so that
/// nothing is optimised away. Throws std::logic_error if the file breaks a promise of GgufFile; a getter's
/// FileError for a value of another type breaks none.
uint64_t read_everything(const GgufFile& file);

}  // namespace minfer::test
