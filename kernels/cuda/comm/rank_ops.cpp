#include "kernels/cuda/comm/rank_ops.h"

#include <algorithm>
#include <array>

#include "kernels/base/error.h"
#include "kernels/cuda/comm/all_reduce_measurement.h"
#include "kernels/cuda/comm/exchange.h"
#include "kernels/cuda/device/check.h"
#include "kernels/cuda/launch/stamp_only.h"

namespace minfer::cuda {
namespace {

/// Kinds of exchange, each with its own count of calls.
enum Kind : size_t { kLines, kChunks, kGather, kTokens, kNumKinds };

/// The most bytes that a sender has in flight for a call: longer all-reduces are cut. A rank's memory holds two times this for each sender.
constexpr int64_t kMostDataBytes = int64_t{32} << 20;
constexpr int64_t kMostDataBytesOfMany = int64_t{16} << 20;
constexpr int64_t kAlignment = 256;

int64_t element_bytes(DType dtype) {
  return static_cast<int64_t>(traits(dtype).block_bytes);
}

int64_t gathered_logits(int32_t ranks, const StepLimits& limits) {
  const auto vocabulary = static_cast<int32_t>(limits.vocab_size);
  return int64_t{limits.logit_slice} * ranks * share_of_vocabulary(vocabulary, ranks);
}

/// `between_processes`: the other ranks cannot write to the logits directly.
BlockLayout layout_of(int32_t ranks, const StepLimits& limits, bool between_processes) {
  const int64_t row_bytes = padded_row_bytes(limits.hidden_size, sizeof(float));
  const int64_t most = ranks > 2 ? kMostDataBytesOfMany : kMostDataBytes;
  BlockLayout layout;
  layout.lines_per_rank = kMostLineBytes / 8;
  layout.data_bytes_per_rank =
      std::clamp<int64_t>(limits.max_tokens * row_bytes, row_bytes, std::max(most, row_bytes)) / kAlignment *
          kAlignment +
      kAlignment;
  layout.tokens_per_call = limits.max_logit_rows;
  const auto take = [&layout](int64_t bytes) {
    const int64_t offset = layout.bytes;
    layout.bytes += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  };
  layout.lines = take(2 * ranks * layout.lines_per_rank * static_cast<int64_t>(sizeof(FlaggedLine)));
  layout.data = take(2 * ranks * layout.data_bytes_per_rank);
  layout.flags = take(int64_t{2} * ranks * kMostChunks * static_cast<int64_t>(sizeof(uint32_t)));
  layout.gather_order = take(2 * sizeof(FlaggedLine));
  layout.gather_flags = take(int64_t{ranks} * kGatherBlocks * static_cast<int64_t>(sizeof(uint32_t)));
  layout.tokens = take(2 * layout.tokens_per_call * static_cast<int64_t>(sizeof(uint64_t)));
  layout.columns = layout.bytes;
  if (between_processes)
    layout.column_bytes = (gathered_logits(ranks, limits) + ranks) * int64_t{sizeof(float)};
  return layout;
}

Tensor rows_of(const Tensor& tensor, int64_t first, int64_t count) {
  Tensor rows = tensor;
  rows.data = static_cast<std::byte*>(tensor.data) + first * tensor.stride * element_bytes(tensor.dtype);
  rows.rows = count;
  return rows;
}

void check_args(const AllReduceArgs& args) {
  require_equal("all_reduce: rows of x", args.part.rows, args.x.rows);
  require_equal("all_reduce: columns of x", args.part.cols, args.x.cols);
  if (args.x.dtype != DType::f32) unsupported("all_reduce", "x of f32", name(args.x.dtype));
  if (args.add_to_x && args.part.data == args.x.data) fail("all_reduce: the part is what it is added to");
  if (!args.norm) return;
  if (args.norm.dtype != DType::f32) unsupported("all_reduce", "a norm of f32", name(args.norm.dtype));
  require_equal("all_reduce: columns of the norm", args.part.cols, args.norm.cols);
  require_equal("all_reduce: rows of normed", args.part.rows, args.normed.rows);
  require_equal("all_reduce: columns of normed", args.part.cols, args.normed.cols);
}

void reach_peers(Rank rank) {
  for (int32_t to = 0; to < rank.count; ++to) {
    if (to == rank.index) continue;
    const cudaError_t status = cudaDeviceEnablePeerAccess(to, 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled) {
      cudaGetLastError();  // not sticky: clear it
    } else {
      check(status, "peer access");
    }
  }
}

/// Launches a library's kernels for an op; they stamp nothing.
template <class Call>
void launch_library(Launch& launch, Call call) {
  if (launch.needs_stamp_of_its_own()) stamp_only(launch);
  call();
  launch.library_launched();
  if (launch.log() != nullptr) launch.log()->add(std::array{-1});
}

}  // namespace

RankOps::RankOps(std::shared_ptr<CudaRanks> ranks, Rank rank, cudaStream_t stream, int32_t num_sms,
                 const StepLimits& limits)
    : ranks_(std::move(ranks)), rank_(rank), num_sms_(num_sms), crossover_(default_crossover(rank.count)) {
  require_equal("tensor-parallel-size: ranks", ranks_->count(), rank.count);
  if (ranks_->uses_peer_memory()) make_peer_memory(limits);
  if (ranks_->nccl() != nullptr) join_nccl(stream, limits);
  choose(stream, limits);
}

RankOps::~RankOps() {
  if (ranks_->failure().is_set()) abort();  // otherwise NCCL would wait for the others
  if (nccl_ != nullptr) ranks_->end_nccl(std::move(nccl_));
}

void RankOps::abort() {
  if (nccl_ != nullptr) ranks_->abort_nccl(rank_, std::move(nccl_));
}

void RankOps::make_peer_memory(const StepLimits& limits) {
  if (!ranks_->is_of_processes()) reach_peers(rank_);
  layout_ = layout_of(rank_.count, limits, ranks_->is_of_processes());
  for (const BlockLayout& layout : ranks_->exchange(rank_, layout_))
    require_equal("limits of ranks: bytes that they exchange", layout_.columns, layout.columns);
  DeviceBuffer block = DeviceBuffer::zeros(
      static_cast<size_t>(layout_.columns + (rank_.is_first() ? layout_.column_bytes : 0)),
      "data of other ranks");
  states_ = DeviceBuffer::zeros(kNumKinds * sizeof(ChannelState), "calls between ranks");
  std::ranges::copy(ranks_->share(rank_, std::move(block)), blocks_.begin());
}

void RankOps::join_nccl(cudaStream_t stream, const StepLimits& limits) {
  NcclLibrary::UniqueId id{};
  if (rank_.is_first()) ranks_->nccl()->check(ranks_->nccl()->get_unique_id(&id), "making an id");
  id = ranks_->exchange(rank_, id).front();
  struct Joined {
    std::shared_ptr<const NcclLibrary> library;
    DeviceBuffer gathered;
    std::unique_ptr<NcclComm> comm;
  };
  load_place_columns();
  const auto joined = std::make_shared<Joined>();
  joined->library = ranks_->nccl();
  const bool moves_all = !ranks_->uses_peer_memory();
  const int64_t elements = moves_all ? gathered_logits(rank_.count, limits) + rank_.count : 1;
  joined->gathered =
      DeviceBuffer(static_cast<size_t>(rank_.is_first() ? elements : rank_.count) * sizeof(float),
                   "logits of other ranks");
  check(cudaMemsetAsync(joined->gathered.data(), 0, joined->gathered.bytes(), stream),
        "clearing memory of other ranks");
  // Calls that connect ranks, here and at a first call, wait on the host, and for ever if a rank has failed.
  const auto join = [joined, rank = rank_, id, stream, moves_all] {
    joined->comm = std::make_unique<NcclComm>(*joined->library, rank, id);
    joined->comm->all_reduce(joined->gathered.data(), 1, DType::f32, stream);
    if (!moves_all) return;
    auto* first = joined->gathered.as<float>();
    joined->comm->gather(first, 1, first + 1, stream);
    joined->comm->broadcast(joined->gathered.as<int32_t>(), 1, stream);
  };
  ranks_->run_watched(rank_, join, "NCCL to connect the ranks");
  gathered_ = std::move(joined->gathered);
  nccl_ = std::move(joined->comm);
  wait(stream, "the first exchange by NCCL");
}

void RankOps::choose(cudaStream_t stream, const StepLimits& limits) {
  if (!ranks_->uses_peer_memory()) {
    const std::string why = ranks_->why_no_peers().empty() ? "" : fmt::format(": {}", ranks_->why_no_peers());
    if (rank_.is_first()) ranks_->set_description("all-reduce by NCCL" + why);
    return;
  }
  if (nccl_ == nullptr) {
    if (rank_.is_first()) ranks_->set_description("all-reduce over peer memory");
    return;
  }
  AllReduceTable table = measure_all_reduce(*this, rank_, stream, num_sms_, limits);
  table = ranks_->exchange(rank_, table).front();
  forced_.reset();
  crossover_ = crossover_of(table);
  if (rank_.is_first()) ranks_->set_description(describe(table, crossover_));
  // If NCCL is slower at every size, its memory and threads are given back.
  if (crossover_.nccl_from != AllReduceCrossover{}.nccl_from) return;
  ranks_->run_watched(
      rank_,
      [comm = std::shared_ptr<NcclComm>(std::move(nccl_)), library = ranks_->nccl()]() mutable {
        comm.reset();
      },
      "the end of NCCL");
}

Channel RankOps::channel(size_t kind) const {
  Channel channel{.state = states_.as<ChannelState>() + kind,
                  .abort = ranks_->abort_word(),
                  .block = {},
                  .rank = rank_.index,
                  .ranks = rank_.count};
  std::ranges::copy(blocks_, channel.block);
  return channel;
}

AllReducePath RankOps::path_of(const AllReduceArgs& args) const {
  if (!ranks_->uses_peer_memory()) return AllReducePath::nccl;
  if (forced_) return *forced_;
  return all_reduce_path(args.part.rows, args.part.cols, element_bytes(args.part.dtype), rank_.count,
                         nccl_ != nullptr ? ranks_->choice() : AllReduceChoice::peer, crossover_);
}

bool RankOps::all_reduce(Launch& launch, const AllReduceArgs& args, unsigned long long* arrived) {
  check_args(args);
  if (args.part.rows == 0 || args.part.cols == 0) return false;
  const AllReducePath path = path_of(args);
  if (path == AllReducePath::nccl) {
    reduce_with_nccl(launch, args);
    return false;
  }
  const int64_t room =
      path == AllReducePath::lines ? layout_.lines_per_rank * 8 : layout_.data_bytes_per_rank;
  const int64_t row_bytes = padded_row_bytes(args.part.cols, element_bytes(args.part.dtype));
  const int64_t fitting = room / row_bytes;
  if (fitting == 0) fail("all_reduce on CUDA: rows of {} bytes, expected at most {}", row_bytes, room);
  for (int64_t first = 0; first < args.part.rows; first += fitting) {
    reduce_rows(launch, path, args, first, std::min(fitting, args.part.rows - first),
                first == 0 ? arrived : nullptr);
  }
  return arrived != nullptr;
}

void RankOps::reduce_rows(Launch& launch, AllReducePath path, const AllReduceArgs& args, int64_t first,
                          int64_t count, unsigned long long* arrived) const {
  Reduction reduction{.args = args,
                      .arrived = arrived,
                      .channel = channel(path == AllReducePath::lines ? kLines : kChunks),
                      .layout = layout_};
  reduction.args.part = rows_of(args.part, first, count);
  reduction.args.x = rows_of(args.x, first, count);
  if (args.norm) reduction.args.normed = rows_of(args.normed, first, count);
  if (path == AllReducePath::lines) return all_reduce_lines(launch, reduction);
  if (path == AllReducePath::chunks) return all_reduce_chunks(launch, reduction);
  all_reduce_two_shot(launch, reduction);
}

void RankOps::reduce_with_nccl(Launch& launch, const AllReduceArgs& args) {
  if (nccl_ == nullptr) fail("all_reduce on CUDA: NCCL is not in use");
  const Tensor& part = args.part;
  if (part.rows > 1) require_equal("all_reduce by NCCL: distance of rows", part.cols, part.stride);
  launch_library(launch, [&] {
    nccl_->all_reduce(part.data, static_cast<size_t>(part.rows * part.cols), part.dtype, launch.stream());
  });
  end_rows(launch, args);
}

void RankOps::gather_columns(Launch& launch, const Tensor& part, const Tensor& out) {
  require_equal("gather_columns: rows of out", part.rows, out.rows);
  require_equal("gather_columns: columns of out", part.cols * rank_.count, out.cols);
  if (part.dtype != DType::f32) unsupported("gather_columns", "parts of f32", name(part.dtype));
  if (out.dtype != DType::f32) unsupported("gather_columns", "out of f32", name(out.dtype));
  if (part.rows == 0 || part.cols == 0) return;
  if (ranks_->uses_peer_memory()) return gather_by_peers(launch, part, out);
  if (part.rows > 1) require_equal("gather_columns by NCCL: distance of rows", part.cols, part.stride);
  const auto count = static_cast<size_t>(part.rows * part.cols);
  if (rank_.is_first() && count * static_cast<size_t>(rank_.count - 1) * sizeof(float) > gathered_.bytes())
    fail("gather_columns on CUDA: {} rows of {} columns exceed the memory for them", out.rows, out.cols);
  launch_library(launch, [&] { nccl_->gather(part.f32(), count, gathered_.as<float>(), launch.stream()); });
  if (rank_.is_first()) place_columns(launch, part, gathered_.as<float>(), rank_.count, out);
}

/// Other processes see only the first rank's block: they write there, and it copies.
void RankOps::gather_by_peers(Launch& launch, const Tensor& part, const Tensor& out) {
  if (!ranks_->is_of_processes() || !rank_.is_first())
    return cuda::gather_columns(launch, channel(kGather), layout_, part, out);
  if (out.rows * out.cols * static_cast<int64_t>(sizeof(float)) > layout_.column_bytes)
    fail("gather_columns on CUDA: {} rows of {} columns exceed the memory for them", out.rows, out.cols);
  Tensor gathered = out;
  gathered.data = blocks_.front() + layout_.columns;
  gathered.stride = out.cols;
  cuda::gather_columns(launch, channel(kGather), layout_, part, gathered);
  copy_rows(launch, gathered, out);
}

void RankOps::share_tokens(Launch& launch, int32_t* tokens, int32_t rows) {
  if (rows == 0) return;
  if (ranks_->uses_peer_memory()) return cuda::share_tokens(launch, channel(kTokens), layout_, tokens, rows);
  launch_library(launch, [&] { nccl_->broadcast(tokens, static_cast<size_t>(rows), launch.stream()); });
}

void RankOps::wait(const std::function<cudaError_t()>& query, std::string_view what) {
  ranks_->wait(rank_, query, what, [this] { abort(); });
}

void RankOps::wait(cudaStream_t stream, std::string_view what) {
  wait([stream] { return cudaStreamQuery(stream); }, what);
}

void RankOps::wait(cudaEvent_t event, std::string_view what) {
  wait([event] { return cudaEventQuery(event); }, what);
}

}  // namespace minfer::cuda
