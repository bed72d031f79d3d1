#include "models/decoder/weights/model_source.h"

// The file's bytes become read-only data of the program; MINFER_DEMO_MODEL is its path at build time.
asm(R"(
    .section .rodata
    .balign 64
    minfer_demo_model_begin:
    .incbin ")" MINFER_DEMO_MODEL R"("
    minfer_demo_model_end:
    .byte 0
    .previous
)");

extern "C" {
extern const std::byte minfer_demo_model_begin[];
extern const std::byte minfer_demo_model_end[];
}

namespace minfer {

std::span<const std::byte> embedded_demo_model() {
  return {minfer_demo_model_begin, minfer_demo_model_end};
}

}  // namespace minfer
