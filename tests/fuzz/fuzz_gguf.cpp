// A GGUF file of any bytes is either refused with a FileError, or read within its bounds.
#include <cstddef>
#include <cstdint>
#include <span>

#include "models/gguf/gguf.h"
#include "tests/support/models/gguf_walk.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    minfer::test::read_everything(
        minfer::GgufFile::from_memory(std::as_bytes(std::span(data, size)), "fuzz"));
  } catch (const minfer::FileError&) {
    return 0;
  }
  return 0;
}
