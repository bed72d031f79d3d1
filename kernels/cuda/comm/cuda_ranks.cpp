#include "kernels/cuda/comm/cuda_ranks.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include <fmt/format.h>

#include "kernels/cuda/comm/peer_memory.h"
#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/devices.h"
#include "kernels/error.h"

namespace minfer {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kUsualPatience{30'000};
/// Ranks come to the meetings of the start when they have loaded their weights, some minutes apart if a disk is slow. A rank that
/// fails meanwhile says so.
constexpr milliseconds kStartPatience{600'000};
constexpr milliseconds kWatchEvery{5};
/// A waiting host looks again at once for so long, then sleeps in between: steps that take longer do not mind.
constexpr milliseconds kSpin{20};
constexpr std::chrono::microseconds kSleep{50};
/// In which kernels see the abort word and end. They poll every few 100 us; after it memory that they write to may be freed.
constexpr milliseconds kSettle{50};
constexpr milliseconds kMostSettle{2'000};

CudaRanksOptions completed(CudaRanksOptions options) {
  if (options.failure == nullptr) options.failure = std::make_shared<RankFailure>();
  if (options.patience <= milliseconds{0}) options.patience = kUsualPatience;
  return options;
}

void check_devices(int32_t count) {
  if (count < 2 || count > cuda::kMostRanks)
    fail("tensor-parallel-size: {} GPUs, expected 2 to {}", count, cuda::kMostRanks);
  const std::vector<CudaDevice> devices = cuda_devices();
  const auto usable = std::ranges::count_if(devices, is_usable);
  const auto needed = static_cast<size_t>(count);
  if (devices.size() < needed || !std::ranges::all_of(devices.begin(), devices.begin() + count, is_usable)) {
    fail("tensor-parallel-size: {} GPUs are needed, the machine has {}, of which {} are supported", count,
         devices.size(), usable);
  }
}

bool all_reach_each_other(int32_t count) {
  for (int32_t from = 0; from < count; ++from) {
    for (int32_t to = 0; to < count; ++to) {
      int can = 1;
      if (from != to) cuda::check(cudaDeviceCanAccessPeer(&can, from, to), "asking for peer access");
      if (can == 0) return false;
    }
  }
  return true;
}

}  // namespace

CudaRanks::CudaRanks(const CudaRanksOptions& options)
    : options_(completed(options)),
      start_(options.count, options_.failure, std::max(kStartPatience, options_.patience)) {
  check_devices(options_.count);
  const bool wants_peers = options_.all_reduce != AllReduceChoice::nccl;
  uses_peer_memory_ = wants_peers && all_reach_each_other(options_.count);
  if (options_.all_reduce != AllReduceChoice::peer) {
    std::string error;
    nccl_ = cuda::NcclLibrary::load(error);
    if (nccl_ == nullptr && !uses_peer_memory_) {
      fail("tensor-parallel-size: {}, and NCCL cannot be used: {}",
           wants_peers ? "the GPUs do not reach each other's memory" : "NCCL is asked for", error);
    }
  } else if (!uses_peer_memory_) {
    fail("tensor-parallel-size: the GPUs do not reach each other's memory, which is asked for");
  }
  abort_word_ = cuda::PinnedBuffer(sizeof(uint32_t), "abort word");
  watcher_ = std::thread([this] { watch(); });
}

CudaRanks::~CudaRanks() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  ends_.notify_all();
  watcher_.join();
}

void CudaRanks::watch() {
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, kWatchEvery, [this] { return is_ending_; })) {
    if (failure().is_set()) return set_abort_word();
  }
}

void CudaRanks::set_abort_word() {
  std::atomic_ref(*abort_word_.as<uint32_t>()).store(1);
}

void CudaRanks::keep(cuda::DeviceBuffer buffer) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(buffer));
}

std::string CudaRanks::describe() const {
  const std::lock_guard lock(mutex_);
  return description_;
}

void CudaRanks::set_description(std::string text) {
  const std::lock_guard lock(mutex_);
  description_ = std::move(text);
}

void CudaRanks::wait(Rank rank, const std::function<cudaError_t()>& query, std::string_view what,
                     const std::function<void()>& abort) {
  const auto begin = steady_clock::now();
  cudaError_t status = query();
  while (status == cudaErrorNotReady && !failure().is_set()) {
    const auto waited = steady_clock::now() - begin;
    if (waited > options_.patience) {
      failure().set(fmt::format("rank {} waited {} ms for {} to end: another rank does not come", rank.index,
                                options_.patience.count(), what));
      break;
    }
    waited < kSpin ? std::this_thread::yield() : std::this_thread::sleep_for(kSleep);
    status = query();
  }
  if (status == cudaSuccess) return failure().check();  // what was aborted ends well, with nothing in it
  if (status != cudaErrorNotReady) {
    failure().set(fmt::format("rank {}: waiting for {}: {}", rank.index, what, cudaGetErrorString(status)));
  }
  set_abort_word();
  abort();
  const auto settling = steady_clock::now();
  while (query() == cudaErrorNotReady && steady_clock::now() - settling < kMostSettle)
    std::this_thread::sleep_for(kSleep);
  std::this_thread::sleep_for(kSettle);
  cuda::check(status == cudaErrorNotReady ? cudaSuccess : status, what);
  failure().check();
}

std::shared_ptr<CudaRanks> make_cuda_ranks(const CudaRanksOptions& options) {
  return std::make_shared<CudaRanks>(options);
}

}  // namespace minfer
