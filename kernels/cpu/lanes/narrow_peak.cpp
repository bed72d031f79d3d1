// Loops over the units that multiply types narrower than f32. No product of this build uses them: they are what one could reach.
#include <array>

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/lanes/peak.h"

namespace minfer::cpu {
namespace {

constexpr int kNarrowChains = 12;  // see peak_impl.h
constexpr int64_t kVectorRounds = 1'000'000, kTileRounds = 125'000;
constexpr int64_t kTileProducts = 4, kTileFlops = 2 * 16 * 16 * 16;  // of 32-bit lanes of a product

// The sums differ from the start: of equal ones the compiler would keep one.
[[gnu::target("avx512f,avx512vnni")]] void multiply_int8_512(int64_t rounds) {
  __m512i sums[kNarrowChains];
  for (int i = 0; i < kNarrowChains; ++i)
    sums[i] = _mm512_set1_epi32(i);
  const __m512i ones = _mm512_set1_epi8(1);
  for (; rounds > 0; --rounds) {
#pragma GCC unroll 12
    for (int i = 0; i < kNarrowChains; ++i)
      sums[i] = _mm512_dpbusd_epi32(sums[i], ones, ones);
  }
  for (const __m512i& sum : sums)
    asm volatile("" ::"v"(sum));
}

[[gnu::target("avx2,avxvnni")]] void multiply_int8_256(int64_t rounds) {
  __m256i sums[kNarrowChains];
  for (int i = 0; i < kNarrowChains; ++i)
    sums[i] = _mm256_set1_epi32(i);
  const __m256i ones = _mm256_set1_epi8(1);
  for (; rounds > 0; --rounds) {
#pragma GCC unroll 12
    for (int i = 0; i < kNarrowChains; ++i)
      sums[i] = _mm256_dpbusd_avx_epi32(sums[i], ones, ones);
  }
  for (const __m256i& sum : sums)
    asm volatile("" ::"x"(sum));
}

[[gnu::target("avx512f,avx512bf16")]] void multiply_bf16_512(int64_t rounds) {
  __m512 sums[kNarrowChains];
  for (int i = 0; i < kNarrowChains; ++i)
    sums[i] = _mm512_set1_ps(static_cast<float>(i));
  const auto small = (__m512bh)_mm512_set1_epi16(0x3a00);  // 2^-11: no sum overflows
  for (; rounds > 0; --rounds) {
#pragma GCC unroll 12
    for (int i = 0; i < kNarrowChains; ++i)
      sums[i] = _mm512_dpbf16_ps(sums[i], small, small);
  }
  for (const __m512& sum : sums)
    asm volatile("" ::"v"(sum));
}

// Eight tiles of 16 rows of 64 bytes; what they are filled with is small as bf16 and as int8. Both are constants because GCC does not
// see that the instructions read them.
struct TileShapes {
  uint8_t palette = 1, first_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
alignas(64) constexpr TileShapes kTileShapes;
alignas(64) constexpr std::array<uint16_t, 512> kTileContent{0x3a00, 0x3a00, 0x3a00};

[[gnu::target("amx-tile")]] void load_tiles() {
  _tile_loadconfig(&kTileShapes);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, kTileContent.data(), 64);
  _tile_loadd(5, kTileContent.data(), 64);
}

// Four chains: a product takes 52 cycles, and one begins every 16.
[[gnu::target("amx-tile,amx-int8")]] void multiply_int8_tiles(int64_t rounds) {
  load_tiles();
  for (; rounds > 0; --rounds) {
    _tile_dpbssd(0, 4, 5);
    _tile_dpbssd(1, 4, 5);
    _tile_dpbssd(2, 4, 5);
    _tile_dpbssd(3, 4, 5);
  }
  _tile_release();
}

[[gnu::target("amx-tile,amx-bf16")]] void multiply_bf16_tiles(int64_t rounds) {
  load_tiles();
  for (; rounds > 0; --rounds) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_release();
}

struct NarrowUnits {
  bool vnni_512 = false, vnni_256 = false, bf16_512 = false, int8_tiles = false, bf16_tiles = false;
};

/// Linux gives a process the tiles' registers when it asks for them.
bool may_use_tiles() {
  constexpr long kAskForPermission = 0x1023, kTileData = 18;
  return ::syscall(SYS_arch_prctl, kAskForPermission, kTileData) == 0;
}

NarrowUnits narrow_units() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (detected_isa() == Isa::portable || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return {};
  const auto has = [](unsigned word, int bit) { return (word >> bit & 1) != 0; };
  const bool has_512 = detected_isa() == Isa::avx512;
  const bool has_tiles = has(d, 24) && may_use_tiles();
  NarrowUnits units{.vnni_512 = has_512 && has(c, 11),
                    .int8_tiles = has_tiles && has(d, 25),
                    .bf16_tiles = has_tiles && has(d, 22)};
  if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) {
    units.vnni_256 = has(a, 4);
    units.bf16_512 = has_512 && has(a, 5);
  }
  return units;
}

}  // namespace

NarrowLoop int8_loop() {
  const NarrowUnits units = narrow_units();
  if (units.int8_tiles) return {&multiply_int8_tiles, kTileProducts * kTileFlops * 4, kTileRounds};
  if (units.vnni_512) return {&multiply_int8_512, 2 * kNarrowChains * 64, kVectorRounds};
  if (units.vnni_256) return {&multiply_int8_256, 2 * kNarrowChains * 32, kVectorRounds};
  return {};
}

NarrowLoop bf16_loop() {
  const NarrowUnits units = narrow_units();
  if (units.bf16_tiles) return {&multiply_bf16_tiles, kTileProducts * kTileFlops * 2, kTileRounds};
  if (units.bf16_512) return {&multiply_bf16_512, 2 * kNarrowChains * 32, kVectorRounds};
  return {};
}

}  // namespace minfer::cpu
