// Measures the ceilings of a GPU's roofline.
//
// Reads: streaming_read() of the whole memory that it takes.
// Products: cuBLASLt on three parts of the same memory, [8192, 8192] bf16 or [4096, 4096] f32 each. A pair of
// bf16 numbers read as f32 also has a magnitude of 0.5 to 2. For e4m3: [8192, 8192] each, to bf16. The memory
// is filled with random bf16 (then e4m3) numbers of magnitude 0.5 to 2: on zeros products run up to 13 %
// faster, since fewer transistors switch.

#include <algorithm>
#include <array>
#include <limits>

#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/owners.h"
#include "kernels/cuda/device/streaming_read.h"
#include "kernels/cuda/product/matmul_search.h"
#include "kernels/cuda/profiler/peak.h"

namespace minfer {
namespace cuda {
namespace {

constexpr size_t kMostBytes = size_t{8} << 30;
constexpr size_t kLeastBytes = size_t{512} << 20;
constexpr size_t kLeftFree = size_t{192} << 20;  ///< for cuBLASLt's workspace and code
constexpr int64_t kMatrixSize = 8192;
constexpr int64_t kF32MatrixSize = 4096;
constexpr int kThreads = 1024;
constexpr int kPasses = 5;
constexpr size_t kReadMultiple = size_t{64} << 10;

/// The bits of 32 that are random, and the bits that are set.
struct RandomWord {
  uint32_t random;
  uint32_t set;
};
/// Numbers of random sign, mantissa and exponent (-1 or 0).
constexpr RandomWord kBf16Pair{.random = 0x80ff80ffu, .set = 0x3f003f00u};
constexpr RandomWord kFourE4m3{.random = 0x8f8f8f8fu, .set = 0x30303030u};

__device__ uint32_t random_word(uint64_t index, RandomWord word) {
  uint64_t z = (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (static_cast<uint32_t>(z >> 32) & word.random) | word.set;
}

__global__ void fill_random(uint32_t* out, size_t count, RandomWord word) {
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride)
    out[i] = random_word(i, word);
}

void fill(const DeviceBuffer& memory, RandomWord word, int num_sms) {
  const Stream stream = make_stream();
  fill_random<<<num_sms * 2, kThreads, 0, stream.get()>>>(memory.as<uint32_t>(),
                                                          memory.bytes() / sizeof(uint32_t), word);
  check(cudaGetLastError(), "filling memory with random numbers");
  check(cudaStreamSynchronize(stream.get()), "filling memory with random numbers");
}

double measure_read_gbps(const DeviceBuffer& memory, int num_sms) {
  const Stream stream = make_stream();
  const DeviceBuffer sink(sizeof(uint32_t), "bandwidth measurement");
  const Event begin = make_timing_event();
  const Event end = make_timing_event();
  float fastest_ms = std::numeric_limits<float>::max();
  for (int pass = 0; pass < kPasses; ++pass) {
    check(cudaEventRecord(begin.get(), stream.get()), "bandwidth measurement");
    streaming_read(stream.get(), memory.data(), memory.bytes(), num_sms, sink.as<uint32_t>());
    check(cudaEventRecord(end.get(), stream.get()), "bandwidth measurement");
    check(cudaEventSynchronize(end.get()), "bandwidth measurement");
    float ms = 0.0f;
    check(cudaEventElapsedTime(&ms, begin.get(), end.get()), "bandwidth measurement");
    fastest_ms = std::min(fastest_ms, ms);
  }
  return static_cast<double>(memory.bytes()) / (1e6 * static_cast<double>(fastest_ms));
}

double measure_gflops(const DeviceBuffer& memory, DType type, DType out_type) {
  const int64_t size = type == DType::f32 ? kF32MatrixSize : kMatrixSize;
  const std::array<DType, 3> types{type, type, out_type};
  std::array<Tensor, 3> matrices;
  std::byte* data = memory.as<std::byte>();
  for (size_t i = 0; i < matrices.size(); ++i) {
    matrices[i] = {.data = data, .dtype = types[i], .rows = size, .cols = size, .stride = size};
    data += static_cast<size_t>(size) * row_bytes(types[i], size);
  }
  const Product product{
      .weight = {matrices[0].data, type, 1, size, size}, .x = matrices[1], .out = matrices[2]};
  const double us = fastest_matmul_us({&product, 1});
  return 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size) / (1e3 * us);
}

}  // namespace
}  // namespace cuda

GpuPeak measure_gpu_peak(DType type, bool fp8) {
  using namespace cuda;
  check(cudaSetDevice(0), "selecting the device");
  int num_sms = 0;
  check(cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, 0), "asking for the device's size");
  size_t free_bytes = 0, total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for free memory");
  const size_t spare = free_bytes - std::min(free_bytes, kLeftFree);
  const DeviceBuffer memory(std::clamp(spare / kReadMultiple * kReadMultiple, kLeastBytes, kMostBytes),
                            "bandwidth measurement");
  fill(memory, kBf16Pair, num_sms);
  GpuPeak peak{.read_gbps = measure_read_gbps(memory, num_sms), .gflops = measure_gflops(memory, type, type)};
  if (type != DType::f32) peak.vector_gflops = measure_gflops(memory, DType::f32, DType::f32);
  if (fp8) {
    fill(memory, kFourE4m3, num_sms);
    peak.fp8_gflops = measure_gflops(memory, DType::f8_e4m3, DType::bf16);
  }
  return peak;
}

}  // namespace minfer
