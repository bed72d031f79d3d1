// Any profile file: no command of `minfer profile` that reads it crashes, or takes more memory than the file justifies; an Error reports
// what is wrong.

#include <cstddef>
#include <cstdint>

#include "tests/support/profiling/every_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  minfer::test::read_everywhere({reinterpret_cast<const char*>(data), size});
  return 0;
}
