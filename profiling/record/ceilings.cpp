#include "profiling/record/ceilings.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include <sys/mman.h>

#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "kernels/cpu/lanes/peak.h"
#include "kernels/cuda/device/devices.h"
#include "kernels/cuda/profiler/peak.h"
#include "profiling/host/host_counters.h"
#include "profiling/record/machine.h"

namespace minfer {
namespace {

constexpr size_t kMaxBufferBytes = 1u << 30;
constexpr size_t kEnoughBytes = 256u << 20;  // touched even when that is slow
constexpr size_t kBlockBytes = 2u << 20;
constexpr int kPasses = 5;
constexpr int64_t kBudgetNs = 600'000'000;  // on a busy machine fewer passes have to do
constexpr int64_t kFmaRounds = 2'000'000;
/// Share of the threads' time without a core from which on others have taken the cores.
constexpr double kTaken = 0.1;

/// The cores' time that measuring threads did not get.
struct TakenTime {
  std::atomic<int64_t> waited_ns{0};  ///< ready to run, without a core
  std::atomic<int64_t> wall_ns{0};    ///< summed over the threads too
};

// Runs work(thread) on `threads` threads at once, `passes` times or until the budget is spent; returns the ns of the fastest.
int64_t fastest_pass_ns(int32_t threads, int passes, TakenTime& taken,
                        const std::function<void(int32_t)>& work) {
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
    const int64_t begin_ns = now_ns(), waited_ns = waited_ns_of_thread();
    together.arrive_and_wait();
    while (left > 0) {
      work(thread);
      together.arrive_and_wait();
    }
    taken.waited_ns += waited_ns_of_thread() - waited_ns;
    taken.wall_ns += now_ns() - begin_ns;
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

// Memory of whole blocks, not touched yet.
std::unique_ptr<char, decltype(&std::free)> read_buffer(size_t bytes) {
  void* data = std::aligned_alloc(kBlockBytes, bytes);
  if (data == nullptr) fail("cannot map {} bytes to measure the memory bandwidth", bytes);
  madvise(data, bytes, MADV_HUGEPAGE);  // where refused, small pages do
  return {static_cast<char*>(data), std::free};
}

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

double measure_read_gbps(const cpu::PeakLoops& loops, int32_t threads, TakenTime& taken) {
  const auto blocks_of_a_thread = [&](size_t bytes) {
    return std::max<size_t>(1, bytes / static_cast<size_t>(threads) / kBlockBytes) * kBlockBytes;
  };
  const size_t slice = blocks_of_a_thread(std::min(available_memory_bytes() / 4, kMaxBufferBytes));
  const size_t least = std::min(slice, blocks_of_a_thread(kEnoughBytes));
  const auto buffer = read_buffer(slice * static_cast<size_t>(threads));
  std::vector<size_t> touched(static_cast<size_t>(threads));
  std::atomic<uint64_t> sink{0};
  // Touched by the thread that reads it: its pages then lie in that thread's NUMA node.
  const auto slice_of = [&](int32_t thread) { return buffer.get() + static_cast<size_t>(thread) * slice; };
  fastest_pass_ns(threads, 1, taken, [&](int32_t thread) {
    touched[static_cast<size_t>(thread)] = touch(slice_of(thread), slice, least);
  });
  const int64_t ns = fastest_pass_ns(threads, kPasses, taken, [&](int32_t thread) {
    sink += loops.read(slice_of(thread), touched[static_cast<size_t>(thread)]);
  });
  const size_t bytes = std::accumulate(touched.begin(), touched.end(), size_t{0});
  return static_cast<double>(bytes) / static_cast<double>(ns);
}

double measure_gflops(const cpu::PeakLoops& loops, int32_t threads, TakenTime& taken) {
  std::atomic<float> sink{0.0f};
  const int64_t ns = fastest_pass_ns(threads, kPasses, taken, [&](int32_t) { sink = loops.fma(kFmaRounds); });
  return static_cast<double>(kFmaRounds * loops.flops_per_round) * threads / static_cast<double>(ns);
}

double measure_gflops(const cpu::NarrowLoop& loop, int32_t threads, TakenTime& taken) {
  if (loop.run == nullptr) return 0.0;
  const int64_t ns = fastest_pass_ns(threads, kPasses, taken, [&](int32_t) { loop.run(loop.rounds); });
  return static_cast<double>(loop.rounds * loop.flops_per_round) * threads / static_cast<double>(ns);
}

}  // namespace

UnitShares units_of(const OpInfo& op) {
  // In delta_rule, prompts are products.
  const bool multiplies =
      is_product(op.kind) || op.kind == OpKind::attention || op.kind == OpKind::delta_rule;
  return {.fp8 = op.fp8_products ? 1.0 : 0.0, .vectors = multiplies ? 0.0 : 1.0};
}

double Ceilings::gflops_of(const UnitShares& units) const {
  const double fp8 = fp8_gflops > 0.0 ? units.fp8 : 0.0;
  const double vectors = vector_gflops > 0.0 ? units.vectors : 0.0;
  if (fp8 + vectors <= 0.0) return gflops;
  const auto part = [](double share, double peak) { return share > 0.0 ? share / peak : 0.0; };
  return 1.0 / (part(fp8, fp8_gflops) + part(vectors, vector_gflops) + part(1.0 - fp8 - vectors, gflops));
}

double Ceilings::floor_us(int64_t bytes, int64_t flops, const UnitShares& units) const {
  if (!known()) return 0.0;
  return std::max(static_cast<double>(bytes) / read_gbps, static_cast<double>(flops) / gflops_of(units)) *
         1e-3;
}

bool Ceilings::compute_bound(int64_t bytes, int64_t flops, const UnitShares& units) const {
  return known() && static_cast<double>(flops) / gflops_of(units) > static_cast<double>(bytes) / read_gbps;
}

Ceilings measure_ceilings(int32_t threads) {
  if (threads < 1) fail("ceilings: {} threads, expected at least 1", threads);
  const cpu::PeakLoops loops = cpu::peak_loops(cpu::detected_isa());
  HostReader host;
  const HostCounters before = host.read(0);
  TakenTime taken;
  Ceilings found{.read_gbps = measure_read_gbps(loops, threads, taken),
                 .gflops = measure_gflops(loops, threads, taken),
                 .bf16_gflops = measure_gflops(cpu::bf16_loop(), threads, taken),
                 .int8_gflops = measure_gflops(cpu::int8_loop(), threads, taken)};
  const HostSample machine =
      between(before, host.read(0), static_cast<int32_t>(std::thread::hardware_concurrency()));
  const double share = static_cast<double>(taken.waited_ns) / static_cast<double>(taken.wall_ns) +
                       (machine.stolen_us + machine.throttled_us / threads) / machine.wall_us();
  found.disturbed_runs = share > kTaken ? 1 : 0;
  return found;
}

std::string ceilings_key(const BackendInfo& backend, std::string_view version) {
  if (backend.name != "cuda") return fmt::format("{}|{}|{}", processor_name(), backend.threads, version);
  const CudaDevice device = cuda_devices().at(0);
  return fmt::format("{}|CUDA driver {}|{}|{}", device.name, device.driver_version,
                     name(backend.activation_dtype), version);
}

Ceilings device_ceilings(const BackendInfo& backend, std::string_view version,
                         const std::filesystem::path& cache_path) {
  const std::string key = ceilings_key(backend, version);
  if (backend.name != "cuda")
    return load_or_measure_ceilings(
        key, [&] { return measure_ceilings(backend.threads); }, cache_path);
  const auto measure = [&]() -> Ceilings {
    try {
      const bool is_narrow = backend.activation_dtype != DType::f32;
      const GpuPeak peak =
          measure_gpu_peak(backend.activation_dtype, is_narrow && has_fp8_tensor_cores(cuda_devices().at(0)));
      return {.read_gbps = peak.read_gbps,
              .gflops = peak.gflops,
              .fp8_gflops = peak.fp8_gflops,
              .vector_gflops = peak.vector_gflops};
    } catch (const DeviceError&) {  // no memory left: a profile is worth having without a roofline
      return {};
    }
  };
  return load_or_measure_ceilings(key, measure, cache_path);
}

}  // namespace minfer
