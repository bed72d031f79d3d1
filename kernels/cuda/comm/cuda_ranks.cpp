#include "kernels/cuda/comm/cuda_ranks.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "kernels/base/error.h"
#include "kernels/comm/rank_gpus.h"
#include "kernels/cuda/comm/peer_memory.h"
#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/devices.h"

namespace minfer {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kUsualPatience{30'000};
/// Ranks come to the meetings of the start after they have loaded their weights, some minutes apart if a disk
/// is slow. A rank that fails meanwhile says so.
constexpr milliseconds kStartPatience{600'000};
constexpr milliseconds kWatchEvery{5};
/// A waiting host polls without pause for this long, then sleeps in between, which does not matter for longer steps.
constexpr milliseconds kSpin{20};
constexpr std::chrono::microseconds kSleep{50};
/// In this time kernels see the abort word and end. They poll every few 100 us; afterwards memory that they write to may be freed.
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

bool reaches(int32_t from, int32_t to) {
  int can = 1;
  if (from != to) cuda::check(cudaDeviceCanAccessPeer(&can, from, to), "asking for peer access");
  return can != 0;
}

bool all_reach_each_other(int32_t count) {
  for (int32_t from = 0; from < count; ++from) {
    for (int32_t to = 0; to < count; ++to)
      if (!reaches(from, to)) return false;
  }
  return true;
}

/// `seen`: the GPUs of all ranks by this process's numbers. It does not see those from `num_gpus` on.
std::string why_not_reached(int32_t own, const std::vector<int32_t>& seen, int64_t num_gpus) {
  for (const int32_t other : seen) {
    if (other >= num_gpus) return "the process does not see the GPUs of all others (CUDA_VISIBLE_DEVICES)";
    if (!reaches(own, other)) return fmt::format("GPU {} does not reach the memory of GPU {}", own, other);
  }
  return {};
}

/// Work on its own thread, for which no thread may wait without a limit.
struct DetachedWork {
  std::mutex mutex;
  std::condition_variable ends;
  bool has_ended = false;
  std::exception_ptr error;
};

std::shared_ptr<DetachedWork> begin_detached(int32_t device, std::function<void()> work) {
  const auto state = std::make_shared<DetachedWork>();
  std::thread([state, work = std::move(work), device]() mutable {
    std::exception_ptr error;
    try {
      cuda::check(cudaSetDevice(device), "selecting the device");
      work();
    } catch (...) {
      error = std::current_exception();
    }
    work = nullptr;  // its resources end before any thread goes on
    const std::lock_guard lock(state->mutex);
    state->error = error;
    state->has_ended = true;
    state->ends.notify_all();
  }).detach();
  return state;
}

/// Abandoned work is still in NCCL or in CUDA when the process ends, and would crash as these are unloaded
/// first. So the process then ends with its status, but without its other exit handlers.
void end_beside_detached_work() {
  static const int registered = on_exit(
      [](int status, void*) {
        std::fflush(nullptr);
        _exit(status);
      },
      nullptr);
  static_cast<void>(registered);
}

std::unique_ptr<RankExchange> make_exchange(const CudaRanksOptions& options, milliseconds patience) {
  if (options.processes) return make_process_exchange(options.processes, patience);
  return make_thread_exchange(options.count, options.failure, patience);
}

/// This process's GPUs and NCCL. Errors are told to all ranks.
RankGpus own_gpus(const std::string& host, const cuda::NcclLibrary* nccl, const std::string& nccl_error) {
  RankGpus own;
  own.host = host;
  own.nccl_error = nccl_error;
  try {
    for (const CudaDevice& device : cuda_devices())
      own.gpus.push_back({.id = device.id, .name = device.name, .is_supported = is_usable(device)});
  } catch (const Error& error) {
    own.error = error.what();
  }
  if (nccl != nullptr) own.nccl = nccl->version();
  return own;
}

}  // namespace

CudaRanks::CudaRanks(const CudaRanksOptions& options)
    : options_(completed(options)),
      exchange_(make_exchange(options_, std::max(kStartPatience, options_.patience))) {
  const bool wants_peers = options_.all_reduce != AllReduceChoice::nccl;
  std::string no_nccl;
  if (options_.all_reduce != AllReduceChoice::peer) nccl_ = cuda::NcclLibrary::load(no_nccl);
  std::string no_peers;
  if (is_of_processes()) {
    no_nccl = find_gpus(no_nccl, no_peers);
  } else {
    check_devices(options_.count);
    if (wants_peers && !all_reach_each_other(options_.count))
      no_peers = "the GPUs do not reach each other's memory";
  }
  if (is_of_processes() && wants_peers && no_peers.empty()) no_peers = why_no_opened_memory();
  uses_peer_memory_ = wants_peers && no_peers.empty();
  if (wants_peers) why_no_peers_ = no_peers;
  if (options_.all_reduce == AllReduceChoice::peer) {
    if (!uses_peer_memory_)
      fail("tensor-parallel-size: --all-reduce peer needs access between GPUs, but {}", no_peers);
  } else if (!no_nccl.empty()) {
    nccl_.reset();
    if (!uses_peer_memory_) {
      fail("tensor-parallel-size: {}, and NCCL cannot be used: {}",
           wants_peers ? no_peers : "NCCL is asked for", no_nccl);
    }
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
  if (!is_of_processes()) return;
  // Without end_in_order() other processes may still write there, and NCCL may wait for them: the end of this process ends all of that.
  for (cuda::DeviceBuffer& buffer : kept_)
    buffer.release();
  for (std::unique_ptr<cuda::NcclComm>& comm : to_end_)
    comm.release();
}

/// Chooses this process's GPU. `no_peers`: why memory cannot be shared, by the lists of GPUs. Returns why NCCL cannot be used.
std::string CudaRanks::find_gpus(const std::string& nccl_error, std::string& no_peers) {
  const Rank rank = own_rank();
  std::vector<RankGpus> all;
  const RankGpus own = own_gpus(options_.processes->host_of(rank.index), nccl_.get(), nccl_error);
  for (const std::string& text : exchange_->exchange(rank, write_gpus(own)))
    all.push_back(read_gpus(text));
  const std::vector<int32_t> devices = device_of_ranks(all);
  own_device_ = devices[static_cast<size_t>(rank.index)];
  cuda::check(cudaSetDevice(own_device_), "selecting the device");
  no_peers = why_no_shared_memory(all, cuda::kMostRanks);
  if (no_peers.empty()) {
    std::vector<int32_t> seen;
    for (size_t other = 0; other < all.size(); ++other) {
      const std::string& id = all[other].gpus[static_cast<size_t>(devices[other])].id;
      seen.push_back(
          static_cast<int32_t>(std::ranges::find(own.gpus, id, &RankGpus::Gpu::id) - own.gpus.begin()));
    }
    no_peers = first_of(rank, why_not_reached(own_device_, seen, std::ssize(own.gpus)));
  }
  return options_.all_reduce == AllReduceChoice::peer ? std::string() : why_no_nccl(all);
}

/// Tries it with memory that serves nothing else.
std::string CudaRanks::why_no_opened_memory() {
  const Rank rank = own_rank();
  // A page of the device: with less, other memory would be shared too.
  constexpr size_t kBytes = size_t{2} << 20;
  cuda::DeviceBuffer probe(kBytes, "memory of other processes");
  std::string error;
  open_blocks(rank, probe, error);
  const std::string why = first_of(rank, error);
  close_opened();
  exchange_->exchange(rank, "");  // no process has it open any more
  return why;
}

/// Returns the text of the first rank that has one. All call it.
std::string CudaRanks::first_of(Rank rank, const std::string& own) {
  const std::vector<std::string> all = exchange_->exchange(rank, own);
  for (size_t from = 0; from < all.size(); ++from)
    if (!all[from].empty())
      return fmt::format("{}: {}", exchange_->name_of(static_cast<int32_t>(from)), all[from]);
  return {};
}

/// The blocks of all processes; those of the others are opened. A block that cannot be opened is null, and `error` says why.
std::vector<std::byte*> CudaRanks::open_blocks(Rank rank, const cuda::DeviceBuffer& own, std::string& error) {
  struct Exported {
    cudaIpcMemHandle_t handle;
    int32_t is_there;
  };
  Exported exported{};
  const auto is_done = [&error](cudaError_t status, const char* what) {
    if (status != cudaSuccess && error.empty())
      error = fmt::format("{}: {}", what, cudaGetErrorString(status));
    if (status != cudaSuccess) cudaGetLastError();  // not sticky: clear it
    return status == cudaSuccess;
  };
  exported.is_there =
      is_done(cudaIpcGetMemHandle(&exported.handle, own.data()), "sharing memory with other processes") ? 1
                                                                                                        : 0;
  const std::vector<Exported> all = exchange(rank, exported);
  std::vector<std::byte*> blocks(all.size(), nullptr);
  for (int32_t from = 0; from < rank.count; ++from) {
    const auto i = static_cast<size_t>(from);
    if (from == rank.index) {
      blocks[i] = own.as<std::byte>();
    } else if (all[i].is_there != 0) {
      void* opened = nullptr;
      if (!is_done(cudaIpcOpenMemHandle(&opened, all[i].handle, cudaIpcMemLazyEnablePeerAccess),
                   "opening memory of another process"))
        continue;
      opened_.push_back(opened);
      blocks[i] = static_cast<std::byte*>(opened);
    }
  }
  return blocks;
}

void CudaRanks::close_opened() noexcept {
  for (void* memory : opened_)
    cudaIpcCloseMemHandle(memory);
  opened_.clear();
}

std::vector<std::byte*> CudaRanks::share(Rank rank, cuda::DeviceBuffer own) {
  std::vector<std::byte*> blocks;
  if (is_of_processes()) {
    std::string error;
    blocks = open_blocks(rank, own, error);
    if (!error.empty()) fail<DeviceError>("{}", error);
  } else {
    blocks = exchange(rank, own.as<std::byte>());
  }
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(own));
  return blocks;
}

void CudaRanks::run_watched(Rank rank, std::function<void()> work, std::string_view what) {
  const std::shared_ptr<DetachedWork> state = begin_detached(device_of(rank), std::move(work));
  const auto end = steady_clock::now() + std::max(kStartPatience, options_.patience);
  std::unique_lock lock(state->mutex);
  while (!state->ends.wait_for(lock, kWatchEvery, [&] { return state->has_ended; })) {
    if (!failure().is_set() && steady_clock::now() > end)
      exchange_->fail(fmt::format("{} waited for {} in vain", exchange_->name_of(rank.index), what));
    if (failure().is_set()) end_beside_detached_work();
    failure().check();
  }
  if (state->error) std::rethrow_exception(state->error);
}

void CudaRanks::abort_nccl(Rank rank, std::unique_ptr<cuda::NcclComm> comm) {
  const auto owned = std::make_shared<std::unique_ptr<cuda::NcclComm>>(std::move(comm));
  const std::shared_ptr<DetachedWork> state =
      begin_detached(device_of(rank), [owned, library = nccl_] { (*owned)->abort(); });
  std::unique_lock lock(state->mutex);
  if (!state->ends.wait_for(lock, kMostSettle, [&] { return state->has_ended; })) end_beside_detached_work();
}

void CudaRanks::end_nccl(std::unique_ptr<cuda::NcclComm> comm) {
  if (!is_of_processes()) return;  // `comm` ends here
  to_end_.push_back(std::move(comm));
}

void CudaRanks::end_in_order() {
  if (!is_of_processes() || (kept_.empty() && to_end_.empty())) return;
  const Rank rank = own_rank();
  const std::unique_ptr<RankExchange> end = make_exchange(options_, options_.patience);
  end->exchange(rank, "");  // all work has ended
  if (!to_end_.empty()) {
    const auto comms = std::make_shared<std::vector<std::unique_ptr<cuda::NcclComm>>>(std::move(to_end_));
    to_end_.clear();
    run_watched(
        rank, [comms, library = nccl_] { comms->clear(); }, "the end of NCCL");
  }
  close_opened();
  end->exchange(rank, "");  // no process has it open any more
  kept_.clear();
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
      exchange_->fail(
          fmt::format("{} waited {} ms for {} to end: {} does not come", exchange_->name_of(rank.index),
                      options_.patience.count(), what,
                      rank.count == 2 ? exchange_->name_of(1 - rank.index) : std::string("another rank")));
      break;
    }
    waited < kSpin ? std::this_thread::yield() : std::this_thread::sleep_for(kSleep);
    status = query();
  }
  if (status == cudaSuccess) return failure().check();  // aborted work ends with success, but without results
  if (status != cudaErrorNotReady) {
    exchange_->fail(fmt::format("{}: waiting for {}: {}", exchange_->name_of(rank.index), what,
                                cudaGetErrorString(status)));
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

void end_in_order(CudaRanks& ranks) {
  ranks.end_in_order();
}

}  // namespace minfer
