#include "profiling/ceilings.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <functional>
#include <thread>
#include <vector>

#include <sys/mman.h>

#include "kernels/cpu/peak.h"
#include "kernels/error.h"
#include "kernels/stamps.h"
#include "profiling/machine.h"

namespace minfer {
namespace {

constexpr size_t kMaxBufferBytes = 1u << 30;
constexpr size_t kMinBufferBytes = 64u << 20;
constexpr size_t kSliceAlignment = 2u << 20;
constexpr int kReadPasses = 5;
constexpr int kFmaPasses = 5;
constexpr int64_t kFmaRounds = 2'000'000;

// Runs work(thread) on `threads` threads at once, `passes` times; returns the ns of the fastest pass.
int64_t fastest_pass_ns(int32_t threads, int passes, const std::function<void(int32_t)>& work) {
  std::vector<int64_t> marks;
  marks.reserve(static_cast<size_t>(passes) + 1);
  std::barrier together(threads, [&]() noexcept { marks.push_back(now_ns()); });
  const auto run = [&](int32_t thread) {
    together.arrive_and_wait();
    for (int pass = 0; pass < passes; ++pass) {
      work(thread);
      together.arrive_and_wait();
    }
  };
  {
    std::vector<std::jthread> others;
    for (int32_t thread = 1; thread < threads; ++thread)
      others.emplace_back(run, thread);
    run(0);
  }
  int64_t fastest = marks[1] - marks[0];
  for (size_t i = 2; i < marks.size(); ++i)
    fastest = std::min(fastest, marks[i] - marks[i - 1]);
  return std::max<int64_t>(fastest, 1);
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

double measure_read_gbps(const cpu::PeakLoops& loops, int32_t threads) {
  const size_t wanted = std::clamp(available_memory_bytes() / 4, kMinBufferBytes, kMaxBufferBytes);
  const size_t slice =
      std::max(kSliceAlignment, wanted / static_cast<size_t>(threads) / kSliceAlignment * kSliceAlignment);
  const size_t bytes = slice * static_cast<size_t>(threads);
  const ReadBuffer buffer(bytes);
  std::atomic<uint64_t> sink{0};
  const auto slice_of = [&](int32_t thread) { return buffer.data() + static_cast<size_t>(thread) * slice; };
  // Written by the thread that reads it: its pages then lie in that thread's NUMA node.
  fastest_pass_ns(threads, 1, [&](int32_t thread) { std::fill_n(slice_of(thread), slice, char{1}); });
  const int64_t ns = fastest_pass_ns(threads, kReadPasses,
                                     [&](int32_t thread) { sink += loops.read(slice_of(thread), slice); });
  return static_cast<double>(bytes) / static_cast<double>(ns);
}

double measure_gflops(const cpu::PeakLoops& loops, int32_t threads) {
  std::atomic<float> sink{0.0f};
  const int64_t ns = fastest_pass_ns(threads, kFmaPasses, [&](int32_t) { sink = loops.fma(kFmaRounds); });
  return static_cast<double>(kFmaRounds * loops.flops_per_round) * threads / static_cast<double>(ns);
}

}  // namespace

double Ceilings::floor_us(int64_t bytes, int64_t flops) const {
  if (!known()) return 0.0;
  return std::max(static_cast<double>(bytes) / read_gbps, static_cast<double>(flops) / gflops) * 1e-3;
}

bool Ceilings::compute_bound(int64_t bytes, int64_t flops) const {
  return known() && static_cast<double>(flops) / gflops > static_cast<double>(bytes) / read_gbps;
}

Ceilings measure_ceilings(int32_t threads) {
  if (threads < 1) fail("ceilings: {} threads, expected at least 1", threads);
  const cpu::PeakLoops loops = cpu::peak_loops(cpu::detected_isa());
  return {measure_read_gbps(loops, threads), measure_gflops(loops, threads)};
}

}  // namespace minfer
