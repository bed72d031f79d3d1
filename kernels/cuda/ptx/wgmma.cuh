#pragma once

#include <cstdint>

/// Hopper's warpgroup products (PTX ISA, "Asynchronous warpgroup level matrix instructions") of bf16, f16 and
/// e4m3 with sums in f32: 64 rows a warpgroup, 16 for each warp. Only for sm_90a.
///
/// Tiles lie in shared memory as slices [rows][64 elements], with rows of 128 bytes whose 16-byte pieces are
/// permuted by piece ^ (row % 8); a slice begins at a multiple of 1,024 bytes. Narrower slices have rows of 64
/// or 32 bytes, see piece_in_row(), and begin at multiples of eight rows. Products run beside the threads: their
/// registers must not be touched from begin_products() to wait_products(); hold() keeps the compiler from it.
namespace minfer::cuda {

inline constexpr int kSliceRowBytes = 128;

/// The place of a 16-byte piece in a row of kRowBytes: TMA permutes it by the row's number among those that share 128 bytes of banks.
template <int kRowBytes>
__device__ __forceinline__ int piece_in_row(int row, int piece) {
  static_assert(kRowBytes == 128 || kRowBytes == 64 || kRowBytes == 32);
  return piece ^ (row % 8 / (128 / kRowBytes));
}

/// A tile as a matrix operand, in slices of kRowBytes a row. `stride`: bytes between slices, for an operand
/// that is not summed over the elements of a row. `eight_rows`: bytes between a slice's groups of eight rows.
template <int kRowBytes = kSliceRowBytes>
__device__ __forceinline__ uint64_t matrix_descriptor(uint32_t shared, uint32_t stride = 0,
                                                      uint32_t eight_rows = 8 * kRowBytes) {
  constexpr uint64_t kSwizzle = kRowBytes == 128 ? 1 : kRowBytes == 64 ? 2 : 3;
  return kSwizzle << 62 | uint64_t{eight_rows >> 4} << 32 | uint64_t{stride >> 4} << 16 |
         (shared & 0x3ffffu) >> 4;
}

/// A tile as a matrix operand without swizzling: core matrices of eight rows of 16 bytes, one after the other.
/// `columns`: bytes to the core matrix of the next 16 bytes of a row; `rows`: to the one of the next eight rows.
__device__ __forceinline__ uint64_t core_operand(uint32_t shared, uint32_t columns, uint32_t rows) {
  return uint64_t{rows >> 4} << 32 | uint64_t{columns >> 4} << 16 | (shared & 0x3ffffu) >> 4;
}

/// The operand `bytes` further on: 32 for the next 16 elements.
__device__ __forceinline__ uint64_t advanced(uint64_t operand, uint32_t bytes) {
  return operand + (bytes >> 4);
}

/// Makes copies that this thread made or knows to be complete visible to products.
__device__ __forceinline__ void publish_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until all but the last `kPending` groups of the warpgroup are done.
template <int kPending>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
/// Changes the number of registers of each thread of the warpgroup: first some warpgroups give registers, then others take them.
template <int kRegisters>
__device__ __forceinline__ void keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
/// Keeps the compiler from using or reusing registers before this point.
template <int kCount>
__device__ __forceinline__ void hold(float (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    asm volatile("" : "+f"(registers[i])::"memory");
}
template <int kCount>
__device__ __forceinline__ void hold(uint32_t (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    asm volatile("" : "+r"(registers[i])::"memory");
}

// A thread's sums in a product with N tokens are N / 2 registers: their names, and the operands for them.
#define MINFER_NAMES_4 "%0, %1, %2, %3"
#define MINFER_NAMES_8 MINFER_NAMES_4 ", %4, %5, %6, %7"
#define MINFER_NAMES_16 MINFER_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define MINFER_NAMES_32 \
  MINFER_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define MINFER_NAMES_40 MINFER_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define MINFER_NAMES_48 MINFER_NAMES_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define MINFER_NAMES_64                                                                               \
  MINFER_NAMES_32                                                                                     \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, " \
  "%51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define MINFER_NAMES_96                                                                               \
  MINFER_NAMES_64                                                                                     \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, " \
  "%83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define MINFER_NAMES_128                                                                                 \
  MINFER_NAMES_96                                                                                        \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, " \
  "%113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define MINFER_SUMS_4(d, i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define MINFER_SUMS_8(d, i) MINFER_SUMS_4(d, i), MINFER_SUMS_4(d, (i) + 4)
#define MINFER_SUMS_16(d, i) MINFER_SUMS_8(d, i), MINFER_SUMS_8(d, (i) + 8)
#define MINFER_SUMS_32(d, i) MINFER_SUMS_16(d, i), MINFER_SUMS_16(d, (i) + 16)
#define MINFER_SUMS_40(d, i) MINFER_SUMS_32(d, i), MINFER_SUMS_8(d, (i) + 32)
#define MINFER_SUMS_48(d, i) MINFER_SUMS_32(d, i), MINFER_SUMS_16(d, (i) + 32)
#define MINFER_SUMS_64(d, i) MINFER_SUMS_32(d, i), MINFER_SUMS_32(d, (i) + 32)
#define MINFER_SUMS_96(d, i) MINFER_SUMS_64(d, i), MINFER_SUMS_32(d, (i) + 64)
#define MINFER_SUMS_128(d, i) MINFER_SUMS_64(d, i), MINFER_SUMS_64(d, (i) + 64)

/// d [64, N] = or += a [64, 16] b [N, 16]^T. R is N / 2; the other parameters are the numbers of the operands after the sums.
/// b is in shared memory with the summed dimension along rows; a too, or in registers in the order of mma.m16n8k16, 16 rows a warp.
#define MINFER_MULTIPLY(NAME, TYPE, N, R, R1, R2, R3, R4, R5)                                            \
  __device__ __forceinline__ void NAME(float(&d)[R], uint64_t a, uint64_t b, bool add) {                 \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #R2                                            \
                 ", 0;\n"                                                                                \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #TYPE "." #TYPE " {" MINFER_NAMES_##R \
                 "}, %" #R ", %" #R1 ", add, 1, 1, 0, 0;\n}"                                             \
                 : MINFER_SUMS_##R(d, 0)                                                                 \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)));                                          \
  }                                                                                                      \
  __device__ __forceinline__ void NAME(float(&d)[R], const uint32_t(&a)[4], uint64_t b, bool add) {      \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #R5                                            \
                 ", 0;\n"                                                                                \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #TYPE "." #TYPE " {" MINFER_NAMES_##R \
                 "}, {%" #R ", %" #R1 ", %" #R2 ", %" #R3 "}, %" #R4 ", add, 1, 1, 0;\n}"                \
                 : MINFER_SUMS_##R(d, 0)                                                                 \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));      \
  }
MINFER_MULTIPLY(multiply_slices, bf16, 8, 4, 5, 6, 7, 8, 9)
MINFER_MULTIPLY(multiply_slices, bf16, 16, 8, 9, 10, 11, 12, 13)
MINFER_MULTIPLY(multiply_slices, bf16, 32, 16, 17, 18, 19, 20, 21)
MINFER_MULTIPLY(multiply_slices, bf16, 64, 32, 33, 34, 35, 36, 37)
MINFER_MULTIPLY(multiply_slices, bf16, 80, 40, 41, 42, 43, 44, 45)
MINFER_MULTIPLY(multiply_slices, bf16, 128, 64, 65, 66, 67, 68, 69)
MINFER_MULTIPLY(multiply_slices, bf16, 192, 96, 97, 98, 99, 100, 101)
MINFER_MULTIPLY(multiply_slices, bf16, 256, 128, 129, 130, 131, 132, 133)
MINFER_MULTIPLY(multiply_slices_f16, f16, 64, 32, 33, 34, 35, 36, 37)
MINFER_MULTIPLY(multiply_slices_f16, f16, 80, 40, 41, 42, 43, 44, 45)
MINFER_MULTIPLY(multiply_slices_f16, f16, 128, 64, 65, 66, 67, 68, 69)
#undef MINFER_MULTIPLY

/// The same for 8-bit numbers (e4m3): d [64, N] = or += a [64, 32] b [N, 32]^T. In each 16 columns lane 4 g + t has columns 4 t ...
/// 4 t + 3 of rows g and g + 8: in a[0] and a[1], for the next 16 in a[2] and a[3]. Sums lose bits beyond some 14 of the largest addend.
#define MINFER_MULTIPLY_E4M3(N, R, R1, R2, R3, R4, R5)                                                       \
  __device__ __forceinline__ void multiply_e4m3(float(&d)[R], const uint32_t(&a)[4], uint64_t b, bool add) { \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #R5                                                \
                 ", 0;\n"                                                                                    \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" MINFER_NAMES_##R               \
                 "}, {%" #R ", %" #R1 ", %" #R2 ", %" #R3 "}, %" #R4 ", add, 1, 1;\n}"                       \
                 : MINFER_SUMS_##R(d, 0)                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));          \
  }                                                                                                          \
  __device__ __forceinline__ void multiply_e4m3(float(&d)[R], uint64_t a, uint64_t b, bool add) {            \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #R2                                                \
                 ", 0;\n"                                                                                    \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" MINFER_NAMES_##R               \
                 "}, %" #R ", %" #R1 ", add, 1, 1;\n}"                                                       \
                 : MINFER_SUMS_##R(d, 0)                                                                     \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)));                                              \
  }
MINFER_MULTIPLY_E4M3(8, 4, 5, 6, 7, 8, 9)
MINFER_MULTIPLY_E4M3(16, 8, 9, 10, 11, 12, 13)
MINFER_MULTIPLY_E4M3(32, 16, 17, 18, 19, 20, 21)
MINFER_MULTIPLY_E4M3(64, 32, 33, 34, 35, 36, 37)
MINFER_MULTIPLY_E4M3(128, 64, 65, 66, 67, 68, 69)
#undef MINFER_MULTIPLY_E4M3

/// d [64, N] += a [64, 16] b [16, N]: a in registers, b in shared memory with the summed dimension across rows.
#define MINFER_MULTIPLY_ROWS(NAME, TYPE, N, R, R1, R2, R3, R4)                                           \
  __device__ __forceinline__ void NAME(float(&d)[R], const uint32_t* a, uint64_t b) {                    \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #TYPE "." #TYPE " {" MINFER_NAMES_##R \
                 "}, {%" #R ", %" #R1 ", %" #R2 ", %" #R3 "}, %" #R4 ", 1, 1, 1, 1;"                     \
                 : MINFER_SUMS_##R(d, 0)                                                                 \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                  \
  }
MINFER_MULTIPLY_ROWS(multiply_rows, bf16, 64, 32, 33, 34, 35, 36)
MINFER_MULTIPLY_ROWS(multiply_rows, bf16, 80, 40, 41, 42, 43, 44)
MINFER_MULTIPLY_ROWS(multiply_rows, bf16, 96, 48, 49, 50, 51, 52)
MINFER_MULTIPLY_ROWS(multiply_rows, bf16, 128, 64, 65, 66, 67, 68)
MINFER_MULTIPLY_ROWS(multiply_rows, bf16, 192, 96, 97, 98, 99, 100)
MINFER_MULTIPLY_ROWS(multiply_rows, bf16, 256, 128, 129, 130, 131, 132)
MINFER_MULTIPLY_ROWS(multiply_rows_f16, f16, 64, 32, 33, 34, 35, 36)
MINFER_MULTIPLY_ROWS(multiply_rows_f16, f16, 80, 40, 41, 42, 43, 44)
MINFER_MULTIPLY_ROWS(multiply_rows_f16, f16, 96, 48, 49, 50, 51, 52)
MINFER_MULTIPLY_ROWS(multiply_rows_f16, f16, 128, 64, 65, 66, 67, 68)
MINFER_MULTIPLY_ROWS(multiply_rows_f16, f16, 192, 96, 97, 98, 99, 100)
MINFER_MULTIPLY_ROWS(multiply_rows_f16, f16, 256, 128, 129, 130, 131, 132)
#undef MINFER_MULTIPLY_ROWS

}  // namespace minfer::cuda
