#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device/attributes.h"
#include "kernels/cuda/device/shape_limits.h"
#include "kernels/cuda/sampling/exp_weight.cuh"
#include "kernels/cuda/sampling/row_logits.cuh"
#include "kernels/cuda/sampling/row_search.cuh"
#include "kernels/cuda/sampling/sample.h"
#include "kernels/cuda/sampling/sample_packed.h"
#include "kernels/random.h"

/// Rows of logits become tokens: see SamplingRow for the steps and their order.
///
///   logits           [rows, vocabulary] f32, rows `stride` elements apart; not changed
///   packed           what pack() wrote; rows past its own number get token 0
///   tables           counts and biases of the rows' sequences: a penalised row reads 4 bytes a token, like its
///                    logits, and adds what it was generated since. Masks: a constrained row reads a bit a token
///   previous_tokens  [rows of the step before] i32
///   tokens           [rows] i32: what each row drew, 0 if it could not draw any
///   results          [rows] RowResult
///
/// One launch. A group of 8 blocks takes a row (a cluster on Hopper; one block elsewhere), each a slice of
/// the vocabulary, read from `logits` once: greedy rows need no more. Otherwise the slice stays in shared
/// memory (in global memory if it does not fit), where mask, bias and penalties change it, and RowSearch finds
/// where top_k and top_p cut the row and which token the random number falls on. A row with logprobs reads
/// its raw logits a second time. What the passes cost: README.md.
///
/// Tokens are those of the CPU backend, but for roundings of a probability mass at the 1e-8 level:
/// probabilities have the same bits; sums over the vocabulary are of integers here (units of 2^-43, rounded
/// down, added exactly) and in double there. A draw
/// depends on the row alone, not on its place, its batch, or the number of blocks.
namespace minfer::cuda {
namespace {

constexpr int kMaxGroup = 8;  ///< blocks of a cluster that every Hopper GPU allows
constexpr double kWeightOfOne = 1ull << kWeightBits;
static_assert(uint64_t{kMaxVocabulary} <= uint64_t{1} << (63 - kWeightBits));

/// On one multiprocessor of Hopper: three slices of a vocabulary of 128,256 fit beside their searches' memory.
constexpr int kSampleBlocks = 3;

template <int kGroup>
using GreedyPass = RowPass<kGroup, kSharingThreads>;

/// Random numbers of a row that are made at once; rows that are tried more often make theirs when they need them.
constexpr uint32_t kRandoms = 8;

/// A random share of a mass, in units, below it.
__device__ __forceinline__ RowWeight share_of(RowWeight mass, double random) {
  return min(RowWeight{__double2ull_rd(random * static_cast<double>(mass))}, mass - 1);
}

/// A row with top_k whose largest logits can not be listed: inverse transform over the tokens that top_k, top_p and min_p leave, in
/// the order of their ids. In the blocks that do not find the token -1, unless all are `told`.
template <class Search>
__device__ __noinline__ int32_t draw_within_cuts(Search& search, const PackedRow& row, double random,
                                                 bool told) {
  const LogitRange range = search.range_of(search.own_range());
  const LogitWeight weight(range.largest, row.temperature);
  RowCutoff cutoff = search.find_cutoff({}, range, TokenWeight{},
                                        {.weight = static_cast<RowWeight>(row.top_k) << kWeightBits});
  if (row.top_p < 1.0f) {
    cutoff = search.find_cutoff(cutoff, range, weight, {.share = row.top_p});
  }
  const float min_p = fminf(row.min_p, 1.0f);
  // The cut's sums are the draw's but where min_p takes tokens from them, or logits that weigh as much.
  if (row.top_p >= 1.0f || 0.999f * weight(cutoff.logit) < min_p) search.forget_runs();

  const auto weigh = [&](float logit, int32_t token) {
    const float own = weight(logit);
    return cutoff.keeps(logit, token) & (own >= min_p) ? own : 0.0f;
  };
  return search.find_token(
      fmaxf(cutoff.logit, weight.floor()), weigh,
      [&](RowWeight mass) -> RowWeight { return share_of(mass, random); }, told);
}

/// A row with top_k. The token in the first block, or in all that are `told`; in others maybe -1.
template <class Search, class Runs, int kGroup>
__device__ int32_t draw_within_top_k(RowGroup<kGroup>& group, Search& search, const Runs& runs,
                                     const PackedRow& row, float largest, const double& random, bool told) {
  uint32_t listed = 0;
  if (row.top_k <= Search::kMostLargest) {
    listed = search.list_largest(threadIdx.x < kWarp ? runs.reached_by(row.top_k) : 0.0f);
  }
  __syncthreads();
  if (listed == 0) return draw_within_cuts(search, row, random, told);
  int32_t token = -1;
  if (group.rank() == 0) {
    token = search.draw_listed(min(static_cast<uint32_t>(row.top_k), listed),
                               LogitWeight(largest, row.temperature), row.top_p, row.min_p, random);
  }
  return told ? static_cast<int32_t>(group.gather(0, static_cast<uint32_t>(token))[0].count) : token;
}

/// Whether a row without top_k may need more than one try.
__device__ __forceinline__ bool may_reject(const PackedRow& row) {
  return row.top_p < 1.0f || row.min_p > 0.0f;
}

/// A row without top_k: rejection. A token is drawn of all; where it is not kept, of those before it, and so on: top_p keeps a token
/// if what stands before it has not yet its share. The token in the warp that finds it, -1 in others; in all where the
/// row may_reject() or they are `told`.
template <class Runs, int kGroup>
__device__ int32_t draw_by_tries(RowGroup<kGroup>& group, Runs& runs, const PackedRow& row, float largest,
                                 const double* randoms, bool told) {
  runs.weigh(LogitWeight(largest, row.temperature));
  group.sync();
  RowWeight mass = runs.sum();
  const RowWeight goal = row.top_p < 1.0f ? PrefixGoal{.share = row.top_p}.of(mass) : ~RowWeight{0};
  TriedToken tried;
  for (uint32_t attempt = 0;; ++attempt) {
    const double random = attempt < kRandoms ? randoms[attempt] : uniform(row.seed, row.position, attempt);
    const auto place = runs.place_of(share_of(mass, random));
    TriedToken found;
    if (runs.has(place.run)) {
      found = runs.find(place, tried);
      if (may_reject(row) || told) runs.tell_found(found);
    }
    if (!may_reject(row) && !told) return found.token;
    group.sync();
    tried = runs.found();
    const bool is_likely = tried.weight >= row.min_p;
    if (row.top_p >= 1.0f && is_likely) return tried.token;
    runs.add_up_before(tried);
    group.sync();
    mass = runs.sum();
    if (mass == 0 || (mass < goal && is_likely)) return tried.token;
  }
}

/// The drawn token's logprob, of which `logit` is the raw logit, and the `num_top` largest ones. `search` and `runs` hold the raw row,
/// `largest` is its largest. Block 0 writes the result.
template <class Search, class Runs, int kGroup>
__device__ __noinline__ void report_logprobs(RowGroup<kGroup>& group, Search& search, Runs runs,
                                             float largest, float logit, int32_t num_top, RowResult& result) {
  const auto wanted = static_cast<uint32_t>(num_top);
  uint32_t listed = 0;
  if (num_top > 0) {
    listed = search.list_largest(threadIdx.x < kWarp ? runs.reached_by(num_top) : 0.0f);
    if (listed == 0) {
      const LogitRange range = search.range_of(search.own_range());
      listed = search.list_prefix(search.find_cutoff(
          {}, range, TokenWeight{}, {.weight = static_cast<RowWeight>(num_top) << kWeightBits}));
    }
  }
  const RowWeight mass = search.sum(LogitWeight(largest, 1.0f));
  if (group.rank() != 0) return;
  const double normaliser = static_cast<double>(largest) + log(static_cast<double>(mass) / kWeightOfOne);
  const auto logprob = [&](float x) { return static_cast<float>(static_cast<double>(x) - normaliser); };
  const uint32_t count = min(listed, wanted);
  if (threadIdx.x < count) {
    const RowCutoff own = search.listed(threadIdx.x);
    result.top[threadIdx.x] = {own.token, logprob(own.logit)};
  }
  if (threadIdx.x == 0) {
    result.num_top = static_cast<int32_t>(count);
    result.logprob = logprob(logit);
  }
}

__device__ int32_t num_packed_rows(const std::byte* packed) {
  return reinterpret_cast<const PackedHeader*>(packed)->num_rows;
}

/// One thread.
__device__ void write_token(const SampleParams& params, int32_t row, int32_t token) {
  params.tokens[row] = max(token, 0);
  params.results[row].token = token;
  params.results[row].num_top = -1;
}

/// Rows of temperature 0 without mask, bias, penalties or logprobs.
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
        sample_kernel(SampleParams params, Stamp stamp) {
  using Search = RowSearch<kGroup, kThreads, kIsShared>;
  using Runs = RowRuns<kGroup, kThreads, kIsShared>;
  constexpr auto kRowWords = static_cast<int32_t>(sizeof(PackedRow) / sizeof(uint32_t));
  static_assert(sizeof(PackedRow) % sizeof(uint32_t) == 0 && kRowWords <= kThreads);
  __shared__ typename Search::Memory search_memory;
  __shared__ PackedRow packed;
  __shared__ double randoms[kRandoms];
  RowGroup<kGroup> group(search_memory.pass.group);
  group.arrive();
  begin_kernel(stamp);
  allow_next_kernel();
  const int32_t row = group.row();
  const int32_t row_of_step = params.first_row + row;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  // Asked for before the logits, looked at behind them: memory answers all at once.
  const int32_t num_rows = num_packed_rows(params.packed);
  const auto* words = reinterpret_cast<const uint32_t*>(params.packed + sizeof(PackedHeader)) +
                      int64_t{row_of_step} * kRowWords;
  const uint32_t word = thread < kRowWords ? words[thread] : 0;
  const int32_t begin = min(group.rank() * params.slice, params.vocabulary);
  const RowSlice slice{
      kIsShared ? shared_slice() : params.storage + blockIdx.x * int64_t{params.padded_slice}, begin,
      min(begin + params.slice, params.vocabulary) - begin};
  float own = load_slice<kThreads>(params, row, slice);
  if (thread < kRowWords) reinterpret_cast<uint32_t*>(&packed)[thread] = word;
  group.wait();
  if (row_of_step >= num_rows) {
    if (group.rank() == 0 && thread == 0) params.tokens[row_of_step] = 0;
    return;
  }
  __syncthreads();
  Search search(group, search_memory, slice);
  Runs runs(search_memory.runs, slice, params.slice);
  if (change_logits(params, packed, slice)) own = search.own_range().largest;
  runs.tell_largest(own);
  group.arrive();
  if (thread >= kThreads - static_cast<int32_t>(kRandoms)) {
    const auto attempt = static_cast<uint32_t>(thread) % kRandoms;
    randoms[attempt] = uniform(packed.seed, packed.position, attempt);
  }
  group.wait();
  const float largest = runs.largest();

  const bool wants_logprobs = params.logprobs && packed.top_logprobs >= 0;
  int32_t token;
  bool writes = group.rank() == 0 && thread == 0;  // where all blocks know the token
  if (packed.temperature == 0.0f || fabsf(largest) == INFINITY) {
    token = search.largest().token;
  } else if (packed.top_k > 0 && packed.top_k < params.vocabulary) {
    token = draw_within_top_k(group, search, runs, packed, largest, randoms[0], wants_logprobs);
    if (!wants_logprobs) writes = thread == 0 && token >= 0;
  } else {
    token = draw_by_tries(group, runs, packed, largest, randoms, wants_logprobs);
    if (!wants_logprobs && !may_reject(packed)) writes = thread % kWarp == 0 && token >= 0;
  }
  if (writes) write_token(params, row_of_step, token);
  if (!wants_logprobs || token < 0) return;
  group.sync();
  runs.tell_largest(load_slice<kThreads>(params, row, slice));
  group.sync();
  report_logprobs(group, search, runs, runs.largest(), params.logits[row * params.stride + token],
                  packed.top_logprobs, params.results[row_of_step]);
}

int32_t slice_of(int64_t vocabulary, int32_t group) {
  return static_cast<int32_t>((vocabulary + 4 * group - 1) / (4 * group) * 4);
}

/// Also has the kernel take as much of an SM for shared memory as there is, so that several blocks fit.
template <int kThreads>
int64_t shared_bytes_for_slice() {
  cudaFuncAttributes attributes{};
  const auto kernel = sample_kernel<kMaxGroup, kThreads, true>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        "preparing the sampling kernel");
  check(cudaFuncGetAttributes(&attributes, kernel), "asking for the sampling kernel");
  return device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) -
         static_cast<int64_t>(attributes.sharedSizeBytes);
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
  if (has_clusters && slice_bytes(kMaxGroup) <= std::min(shared_bytes_for_slice<kSharingThreads>(),
                                                         shared_bytes_for_slice<kAloneThreads>())) {
    group_ = kMaxGroup;
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
  const SampleParams params{
      .logits = logits.f32(),
      .stride = logits.stride,
      .first_row = first_row,
      .vocabulary = static_cast<int32_t>(logits.cols),
      .vectors = reinterpret_cast<uintptr_t>(logits.data) % 16 == 0 && logits.stride % 4 == 0,
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
  const dim3 grid(static_cast<uint32_t>(logits.rows * group_));
  const bool greedy = mode.greedy_only && !mode.logprobs;
  const auto run = [&](auto* kernel, int threads) {
    const size_t shared_bytes = greedy || group_ == 1 ? 0 : padded_slice * sizeof(float);
    launch("sample", kernel, grid, dim3(static_cast<uint32_t>(threads)), shared_bytes, params);
  };
  if (greedy) return run(group_ == 1 ? greedy_kernel<1> : greedy_kernel<kMaxGroup>, kSharingThreads);
  if (group_ == 1) return run(sample_kernel<1, kAloneThreads, false>, kAloneThreads);
  if (logits.rows * group_ <= launch.num_sms()) {
    return run(sample_kernel<kMaxGroup, kAloneThreads, true>, kAloneThreads);
  }
  run(sample_kernel<kMaxGroup, kSharingThreads, true>, kSharingThreads);
}

}  // namespace minfer::cuda
