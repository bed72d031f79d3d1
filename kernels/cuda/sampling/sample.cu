#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device/attributes.h"
#include "kernels/cuda/device/shape_limits.h"
#include "kernels/cuda/sampling/row_sampler.cuh"
#include "kernels/cuda/sampling/sample.h"

/// Turns rows of logits into tokens: SamplingRow has the steps and their order.
///
///   logits           [rows, vocabulary] f32, rows `stride` elements apart; not changed
///   packed           written by pack(); rows past its number of rows get token 0
///   tables           counts and biases of the rows' sequences: a penalised row reads 4 bytes a token, like its logits,
///                    and adds tokens generated since. Masks: a constrained row reads a bit a token
///   previous_tokens  [rows of the step before] i32
///   tokens           [rows] i32: the drawn token of each row, 0 if it could not draw any
///   results          [rows] RowResult
///
/// One launch. A group of 8 blocks takes a row (a cluster on Hopper; one block elsewhere). Each block takes a
/// slice of the vocabulary and reads it from `logits` once; greedy rows need no more. Otherwise the slice stays
/// in shared memory (in global memory if it does not fit), where mask, bias and penalties change it. RowRuns
/// draws by tries, RowSearch finds where top_k cuts the row. The grid has as many groups as run at a time, and
/// they take rows in turn; while a group has one row, the L2 fetches the next. A row with logprobs reads its
/// raw logits a second time. README.md has the cost of the passes.
///
/// Tokens are those of the CPU backend, except for roundings of a probability mass at the 1e-8 level:
/// probabilities have the same bits; sums over the vocabulary are sums of integers here (units of 2^-43,
/// rounded down, added exactly) and of doubles there. A draw depends on the row alone, not on its place, its
/// batch, or the number of blocks.
namespace minfer::cuda {
namespace {

constexpr int kMaxGroup = 8;  ///< blocks of a cluster that every Hopper GPU allows

/// Blocks on one multiprocessor of Hopper. It has 228 KB of shared memory, of which each block takes one KB for
/// the system: three slices of a vocabulary of 128,256 fit beside their searches' memory.
constexpr int kSampleBlocks = 3;
constexpr size_t kSearchBytes =
    (228 * 1024 / kSampleBlocks - 1024) / 128 * 128 - padded_run_slice(128'256 / kMaxGroup) * sizeof(float);

template <int kGroup>
using GreedyPass = RowPass<kGroup, kSharingThreads>;

/// Samples rows of temperature 0 without mask, bias, penalties or logprobs.
template <int kGroup>
__global__ void MINFER_CLUSTER(kGroup) __launch_bounds__(kSharingThreads, 2)
    greedy_kernel(SampleParams params, Stamp stamp) {
  __shared__ typename GreedyPass<kGroup>::Memory pass_memory;
  RowGroup<kGroup> group(pass_memory.group);
  group.sync();
  begin_kernel(stamp);
  allow_next_kernel();
  const int32_t row = group.row();
  const int32_t begin = min(group.rank() * params.slice, params.vocabulary);
  const int32_t end = min(begin + params.slice, params.vocabulary);
  LargestLogit own;
  read_logits(params, row, begin, end, [&](const float4& four, int32_t token) {
    own.see(four.x, token);
    own.see(four.y, token + 1);
    own.see(four.z, token + 2);
    own.see(four.w, token + 3);
  });
  const int32_t token = GreedyPass<kGroup>(group, pass_memory, {}).largest_of(own).token;
  if (group.rank() != 0 || threadIdx.x != 0) return;
  const int32_t row_of_step = params.first_row + row;
  if (row_of_step < num_packed_rows(params.packed)) {
    write_token(params, row_of_step, token);
  } else {
    params.tokens[row_of_step] = 0;
  }
}

template <int kGroup, int kThreads, bool kIsShared>
__global__ void MINFER_CLUSTER(kGroup)
    __launch_bounds__(kThreads, kThreads == kSharingThreads ? kSampleBlocks : 1)
        sample_kernel(const __grid_constant__ SampleParams params, Stamp stamp) {
  using Sampler = RowSampler<kGroup, kThreads, kIsShared>;
  __shared__ typename Sampler::Memory memory;
  static_assert(kThreads != kSharingThreads || sizeof memory <= kSearchBytes);
  const int32_t begin = min(RowGroup<kGroup>::rank() * params.slice, params.vocabulary);
  const RowSlice slice{
      kIsShared ? shared_slice() : params.storage + blockIdx.x * int64_t{params.padded_slice}, begin,
      min(begin + params.slice, params.vocabulary) - begin};
  RowGroup<kGroup> group(memory.search.pass.group);
  typename Sampler::Search search(group, memory.search, slice);
  Sampler sampler(params, memory, slice, group, search);
  sampler.prepare();
  begin_kernel(stamp);
  allow_next_kernel();
  sampler.sample_rows();
}

int32_t slice_of(int64_t vocabulary, int32_t group) {
  return static_cast<int32_t>((vocabulary + 4 * group - 1) / (4 * group) * 4);
}

constexpr auto kSharingKernel = sample_kernel<kMaxGroup, kSharingThreads, true>;
constexpr auto kAloneKernel = sample_kernel<kMaxGroup, kAloneThreads, true>;

/// Also makes the kernel take as much of an SM as possible for shared memory, so that several blocks fit.
int64_t shared_bytes_for_slice(decltype(kSharingKernel) kernel) {
  cudaFuncAttributes attributes{};
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        "preparing the sampling kernel");
  check(cudaFuncGetAttributes(&attributes, kernel), "asking for the sampling kernel");
  return device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) -
         static_cast<int64_t>(attributes.sharedSizeBytes);
}

/// Clusters of the kernel that shares multiprocessors: the number that the device runs at a time.
int64_t most_clusters(int64_t shared_bytes) {
  check(cudaFuncSetAttribute(kSharingKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shared_bytes)),
        "preparing the sampling kernel");
  cudaLaunchAttribute clusters{};
  clusters.id = cudaLaunchAttributeClusterDimension;
  clusters.val.clusterDim = {kMaxGroup, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kMaxGroup);
  config.blockDim = dim3(kSharingThreads);
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.attrs = &clusters;
  config.numAttrs = 1;
  int count = 0;
  check(cudaOccupancyMaxActiveClusters(&count, kSharingKernel, &config), "asking for the sampling kernel");
  return std::max(count, 1);
}

/// The fewest groups of blocks that take `rows` rows in as few rounds as `most` groups would.
int64_t groups_for(int64_t rows, int64_t most) {
  const int64_t rounds = (rows + most - 1) / most;
  return (rows + rounds - 1) / rounds;
}

}  // namespace

SampleOps::SampleOps(int32_t /*num_sms*/, const StepLimits& limits) {
  if (limits.vocab_size > kMaxVocabulary) {
    require_equal("sample: vocabulary at most", kMaxVocabulary, limits.vocab_size);
  }
  const auto slice_bytes = [&](int32_t group) {
    return padded_run_slice(slice_of(limits.vocab_size, group)) * int64_t{sizeof(float)};
  };
  const bool has_clusters = device_attribute(cudaDevAttrComputeCapabilityMajor) >= 9;
  if (has_clusters && slice_bytes(kMaxGroup) <= std::min(shared_bytes_for_slice(kSharingKernel),
                                                         shared_bytes_for_slice(kAloneKernel))) {
    group_ = kMaxGroup;
    rows_at_a_time_ = most_clusters(slice_bytes(kMaxGroup));
  } else {
    storage_ = DeviceBuffer(static_cast<size_t>(limits.logit_slice * slice_bytes(1)),
                            "logits as sampling changes them");
  }
}

void SampleOps::sample(Launch& launch, const Tensor& logits, int32_t first_row, SampleMode mode,
                       const std::byte* packed, const SamplingTablesView& tables,
                       const int32_t* previous_tokens, int32_t* tokens, std::byte* results) {
  if (logits.dtype != DType::f32) unsupported("sample", "logits of f32", name(logits.dtype));
  if (logits.rows == 0) return;
  const int32_t slice = slice_of(logits.cols, group_);
  const int32_t padded_slice = padded_run_slice(slice);
  const bool vectors = reinterpret_cast<uintptr_t>(logits.data) % 16 == 0 && logits.stride % 4 == 0;
  const SampleParams params{
      .logits = logits.f32(),
      .stride = logits.stride,
      .first_row = first_row,
      .rows = static_cast<int32_t>(logits.rows),
      .vocabulary = static_cast<int32_t>(logits.cols),
      .vectors = vectors,
      .bulk = vectors && logits.cols % 4 == 0,
      .storage = storage_.as<float>(),
      .slice = slice,
      .padded_slice = padded_slice,
      .logprobs = mode.logprobs,
      .packed = packed,
      .tables = tables,
      .previous_tokens = previous_tokens,
      .tokens = tokens,
      .results = reinterpret_cast<RowResult*>(results),
  };
  const bool greedy = mode.greedy_only && !mode.logprobs;
  const auto run = [&](auto* kernel, int threads, int64_t groups) {
    const dim3 grid(static_cast<uint32_t>(groups * group_));
    const size_t shared_bytes = greedy || group_ == 1 ? 0 : padded_slice * sizeof(float);
    launch("sample", kernel, grid, dim3(static_cast<uint32_t>(threads)), shared_bytes, params);
  };
  if (greedy) {
    return run(group_ == 1 ? greedy_kernel<1> : greedy_kernel<kMaxGroup>, kSharingThreads, logits.rows);
  }
  if (group_ == 1) return run(sample_kernel<1, kAloneThreads, false>, kAloneThreads, logits.rows);
  if (logits.rows * group_ <= launch.num_sms()) return run(kAloneKernel, kAloneThreads, logits.rows);
  run(kSharingKernel, kSharingThreads, groups_for(logits.rows, rows_at_a_time_));
}

}  // namespace minfer::cuda
