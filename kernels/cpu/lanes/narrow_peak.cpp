// Loops over the units that multiply types narrower than f32. No product of this build uses them: they show what one could reach.
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/lanes/peak.h"

// Twelve chains, as in peak_impl.h.
#define MINFER_VECTOR_LOOP(function, features, vector, product)                                           \
  [[gnu::target(features)]] void function(int64_t rounds) {                                               \
    asm volatile("vmovd %1, %%xmm12\n vpbroadcastd %%xmm12, %%" vector                                    \
                 "12\n"                                                                                   \
                 "1: .irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11\n" product " %%" vector "12, %%" vector \
                 "12, %%" vector "\\i\n .endr\n dec %0\n jnz 1b\n vzeroupper"                             \
                 : "+r"(rounds)                                                                           \
                 : "r"(kFactors)                                                                          \
                 : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",  \
                   "xmm10", "xmm11", "xmm12");                                                            \
  }
// Four chains: a product of tiles takes 52 cycles, and one begins every 16.
#define MINFER_TILE_LOOP(function, features, product)                   \
  [[gnu::target("amx-tile," features)]] void function(int64_t rounds) { \
    asm volatile("ldtilecfg %1\n 1: .irp i, 0, 1, 2, 3\n" product       \
                 " %%tmm5, %%tmm4, %%tmm\\i\n .endr\n"                  \
                 "dec %0\n jnz 1b\n tilerelease"                        \
                 : "+r"(rounds)                                         \
                 : "m"(kTileShapes)                                     \
                 : "cc");                                               \
  }

namespace minfer::cpu {
namespace {

constexpr uint32_t kFactors = 0x3a003a00u;  // small as bf16, so no sum overflows
constexpr int64_t kVectorRounds = 1'000'000, kTileRounds = 125'000;
constexpr int64_t kVectorFlops = 2 * 12,
                  kTileFlops = 2 * 4 * 16 * 16 * 16;  // for each round, and each factor in a 32-bit lane

/// Eight tiles of 16 rows of 64 bytes.
struct TileShapes {
  uint8_t palette = 1, first_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileShapes kTileShapes;

MINFER_VECTOR_LOOP(multiply_int8_512, "avx512f,avx512vnni", "zmm", "vpdpbusd")
MINFER_VECTOR_LOOP(multiply_int8_256, "avx2,avxvnni", "ymm", "%{vex%} vpdpbusd")
MINFER_VECTOR_LOOP(multiply_bf16_512, "avx512f,avx512bf16", "zmm", "vdpbf16ps")
MINFER_TILE_LOOP(multiply_int8_tiles, "amx-int8", "tdpbssd")
MINFER_TILE_LOOP(multiply_bf16_tiles, "amx-bf16", "tdpbf16ps")

/// Leaf 7 of cpuid; zeros if the processor lacks it.
struct Features {
  unsigned a = 0, b = 0, c = 0, d = 0;
};
Features features(unsigned subleaf) {
  Features found;
  if (detected_isa() == Isa::portable ||
      __get_cpuid_count(7, subleaf, &found.a, &found.b, &found.c, &found.d) == 0)
    return {};
  return found;
}
bool has(unsigned word, int bit) {
  return (word >> bit & 1) != 0;
}

/// Linux gives a process the tiles' registers only when it asks for them.
bool may_use_tiles() {
  constexpr long kAskForPermission = 0x1023, kTileData = 18;
  return has(features(0).d, 24) && ::syscall(SYS_arch_prctl, kAskForPermission, kTileData) == 0;
}

}  // namespace

NarrowLoop int8_loop() {
  const Features first = features(0);
  if (has(first.d, 25) && may_use_tiles()) return {&multiply_int8_tiles, kTileFlops * 4, kTileRounds};
  if (detected_isa() == Isa::avx512 && has(first.c, 11))
    return {&multiply_int8_512, kVectorFlops * 64, kVectorRounds};
  if (first.a >= 1 && has(features(1).a, 4)) return {&multiply_int8_256, kVectorFlops * 32, kVectorRounds};
  return {};
}

NarrowLoop bf16_loop() {
  const Features first = features(0);
  if (has(first.d, 22) && may_use_tiles()) return {&multiply_bf16_tiles, kTileFlops * 2, kTileRounds};
  if (detected_isa() == Isa::avx512 && first.a >= 1 && has(features(1).a, 5))
    return {&multiply_bf16_512, kVectorFlops * 32, kVectorRounds};
  return {};
}

}  // namespace minfer::cpu
