#include "profiling/record/ceilings.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <functional>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

#include <sys/mman.h>

#include "kernels/cpu/lanes/peak.h"
#include "kernels/cuda/device/devices.h"
#include "kernels/cuda/device/peak.h"
#include "kernels/error.h"
#include "kernels/stamps.h"
#include "profiling/record/machine.h"

namespace minfer {
namespace {

constexpr size_t kMaxBufferBytes = 1u << 30;
constexpr size_t kEnoughBytes = 256u << 20;  // touched even when that is slow
constexpr size_t kBlockBytes = 2u << 20;
constexpr int kPasses = 5;
constexpr int64_t kBudgetNs = 600'000'000;  // on a busy machine fewer passes have to do
constexpr int64_t kFmaRounds = 2'000'000;

// Runs work(thread) on `threads` threads at once, `passes` times or until the budget is spent; returns the ns
// of the fastest.
int64_t fastest_pass_ns(int32_t threads, int passes, const std::function<void(int32_t)>& work) {
  int64_t start = 0;
  int64_t pass_start = 0;
  int64_t fastest = std::numeric_limits<int64_t>::max();
  int left = passes;
  const auto finish_pass = [&]() noexcept {  // on one thread, while the others wait
    const int64_t now = now_ns();
    if (pass_start == 0) {
      start = now;
    } else {
      fastest = std::min(fastest, std::max<int64_t>(1, now - pass_start));
      left = now - start > kBudgetNs ? 0 : left - 1;
    }
    pass_start = now;
  };
  std::barrier together(threads, finish_pass);
  const auto run = [&](int32_t thread) {
    together.arrive_and_wait();
    while (left > 0) {
      work(thread);
      together.arrive_and_wait();
    }
  };
  std::vector<std::jthread> others;
  try {
    for (int32_t thread = 1; thread < threads; ++thread)
      others.emplace_back(run, thread);
  } catch (...) {  // those that have started wait for the others, which do not come
    left = 0;
    for (auto missing = static_cast<int32_t>(others.size()); missing < threads; ++missing)
      together.arrive_and_drop();
    throw;
  }
  run(0);
  others.clear();  // joins
  return fastest;
}

class ReadBuffer {
 public:
  explicit ReadBuffer(size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) fail("cannot map {} bytes to measure the memory bandwidth", bytes_);
    madvise(data_, bytes_, MADV_HUGEPAGE);  // where refused, small pages do
  }
  ~ReadBuffer() { munmap(data_, bytes_); }
  ReadBuffer(const ReadBuffer&) = delete;
  ReadBuffer& operator=(const ReadBuffer&) = delete;
  char* data() const { return static_cast<char*>(data_); }

 private:
  size_t bytes_;
  void* data_;
};

// Touches a slice of the buffer from its start until `wanted` bytes are touched, or, past `least`, the budget
// is spent: memory that a virtual machine never had before comes slowly. Returns the bytes touched.
size_t touch(char* slice, size_t wanted, size_t least) {
  const int64_t start = now_ns();
  size_t touched = 0;
  while (touched < wanted && (touched < least || now_ns() - start < kBudgetNs)) {
    std::fill_n(slice + touched, kBlockBytes, char{1});
    touched += kBlockBytes;
  }
  return touched;
}

double measure_read_gbps(const cpu::PeakLoops& loops, int32_t threads) {
  const auto blocks_of_a_thread = [&](size_t bytes) {
    return std::max<size_t>(1, bytes / static_cast<size_t>(threads) / kBlockBytes) * kBlockBytes;
  };
  const size_t slice = blocks_of_a_thread(std::min(available_memory_bytes() / 4, kMaxBufferBytes));
  const size_t least = std::min(slice, blocks_of_a_thread(kEnoughBytes));
  const ReadBuffer buffer(slice * static_cast<size_t>(threads));
  std::vector<size_t> touched(static_cast<size_t>(threads));
  std::atomic<uint64_t> sink{0};
  // Touched by the thread that reads it: its pages then lie in that thread's NUMA node.
  const auto slice_of = [&](int32_t thread) { return buffer.data() + static_cast<size_t>(thread) * slice; };
  fastest_pass_ns(threads, 1, [&](int32_t thread) {
    touched[static_cast<size_t>(thread)] = touch(slice_of(thread), slice, least);
  });
  const int64_t ns = fastest_pass_ns(threads, kPasses, [&](int32_t thread) {
    sink += loops.read(slice_of(thread), touched[static_cast<size_t>(thread)]);
  });
  const size_t bytes = std::accumulate(touched.begin(), touched.end(), size_t{0});
  return static_cast<double>(bytes) / static_cast<double>(ns);
}

double measure_gflops(const cpu::PeakLoops& loops, int32_t threads) {
  std::atomic<float> sink{0.0f};
  const int64_t ns = fastest_pass_ns(threads, kPasses, [&](int32_t) { sink = loops.fma(kFmaRounds); });
  return static_cast<double>(kFmaRounds * loops.flops_per_round) * threads / static_cast<double>(ns);
}

}  // namespace

double Ceilings::gflops_of(double fp8_share) const {
  if (fp8_share <= 0.0 || fp8_gflops <= 0.0) return gflops;
  return fp8_share >= 1.0 ? fp8_gflops : 1.0 / (fp8_share / fp8_gflops + (1.0 - fp8_share) / gflops);
}

double Ceilings::floor_us(int64_t bytes, int64_t flops, double fp8_share) const {
  if (!known()) return 0.0;
  return std::max(static_cast<double>(bytes) / read_gbps, static_cast<double>(flops) / gflops_of(fp8_share)) *
         1e-3;
}

bool Ceilings::compute_bound(int64_t bytes, int64_t flops, double fp8_share) const {
  return known() &&
         static_cast<double>(flops) / gflops_of(fp8_share) > static_cast<double>(bytes) / read_gbps;
}

Ceilings measure_ceilings(int32_t threads) {
  if (threads < 1) fail("ceilings: {} threads, expected at least 1", threads);
  const cpu::PeakLoops loops = cpu::peak_loops(cpu::detected_isa());
  return {.read_gbps = measure_read_gbps(loops, threads), .gflops = measure_gflops(loops, threads)};
}

Ceilings device_ceilings(const BackendInfo& backend, std::string_view version, bool fp8_products,
                         const std::filesystem::path& cache_path) {
  if (backend.name != "cuda") {
    return load_or_measure_ceilings(
        fmt::format("{}|{}|{}", processor_name(), backend.threads, version), false,
        [&] { return measure_ceilings(backend.threads); }, cache_path);
  }
  const CudaDevice device = cuda_devices().at(0);
  const bool fp8 = fp8_products && has_fp8_tensor_cores(device);
  const auto measure = [&]() -> Ceilings {
    try {
      const GpuPeak peak = measure_gpu_peak(backend.activation_dtype, fp8);
      return {.read_gbps = peak.read_gbps, .gflops = peak.gflops, .fp8_gflops = peak.fp8_gflops};
    } catch (const DeviceError&) {  // no memory left: a profile is worth having without a roofline
      return {};
    }
  };
  return load_or_measure_ceilings(fmt::format("{}|CUDA driver {}|{}|{}", device.name, device.driver_version,
                                              name(backend.activation_dtype), version),
                                  fp8, measure, cache_path);
}

}  // namespace minfer
