#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device/attributes.h"
#include "kernels/cuda/device/shape_limits.h"
#include "kernels/cuda/sampling/exp_weight.cuh"
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

/// Of a block, where blocks share multiprocessors, and where each has one by itself: few rows wait for latencies.
constexpr int kSharingThreads = 256, kAloneThreads = 1024;
constexpr int kWarp = 32;
constexpr int kMaxGroup = 8;  ///< blocks of a cluster that every Hopper GPU allows
constexpr double kWeightOfOne = 1ull << kWeightBits;
static_assert(uint64_t{kMaxVocabulary} <= uint64_t{1} << (63 - kWeightBits));

/// On one multiprocessor of Hopper: three slices of a vocabulary of 128,256 fit beside their searches' memory.
constexpr int kSampleBlocks = 3;

template <int kGroup>
using GreedyPass = RowPass<kGroup, kSharingThreads>;

__device__ __forceinline__ int32_t block_threads() {
  return static_cast<int32_t>(blockDim.x);
}

struct SampleParams {
  const float* logits;
  int64_t stride;
  int32_t first_row;  ///< of the step, that the first row of logits is of
  int32_t vocabulary;
  bool vectors;    ///< rows allow 16-byte loads
  float* storage;  ///< [rows * group] slices, or null: they are in shared memory
  int32_t slice;   ///< tokens of a slice, a multiple of 4
  bool logprobs;
  const std::byte* packed;
  SamplingTablesView tables;
  const int32_t* previous_tokens;
  int32_t* tokens;
  RowResult* results;
};

/// Logits of tokens i ... i + 3; -inf from `end` on.
__device__ __forceinline__ float4 load_four(const SampleParams& params, const float* logits, int32_t i,
                                            int32_t end) {
  if (params.vectors && i + 4 <= end) return __ldcs(reinterpret_cast<const float4*>(logits + i));
  const auto at = [&](int32_t k) { return k < end ? logits[k] : -INFINITY; };
  return {at(i), at(i + 1), at(i + 2), at(i + 3)};
}

/// Calls visit(four logits, first token) for a thread's tokens of [begin, end), ascending. Many loads are in
/// flight at a time.
template <class Visit>
__device__ void read_logits(const SampleParams& params, int32_t row, int32_t begin, int32_t end,
                            const Visit& visit) {
  constexpr int kInFlight = 8;
  const float* logits = params.logits + row * params.stride;
  const int32_t step = 4 * block_threads();
  for (int32_t base = begin + 4 * static_cast<int32_t>(threadIdx.x); base < end; base += step * kInFlight) {
    float4 fours[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      const int32_t i = base + step * k;
      if (i < end) fours[k] = load_four(params, logits, i, end);
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      const int32_t i = base + step * k;
      if (i < end) visit(fours[k], i);
    }
  }
}

/// Copies a slice, NaN as -inf. Returns the range of what this thread copied.
__device__ LogitRange load_slice(const SampleParams& params, int32_t row, const RowSlice& slice) {
  LogitRange own;
  const auto number = [&](float logit) {
    logit = fmaxf(logit, -INFINITY);  // of NaN and a number: the number
    own.see(logit);
    return logit;
  };
  read_logits(params, row, slice.first, slice.first + slice.size, [&](const float4& four, int32_t token) {
    *reinterpret_cast<float4*>(slice.values + token - slice.first) =
        make_float4(number(four.x), number(four.y), number(four.z), number(four.w));
  });
  __syncthreads();
  return own;
}

/// -inf for the tokens of the slice that a mask does not allow: a warp's 32 tokens are in one or two of its words.
__device__ void forbid_others(const uint32_t* mask, const RowSlice& slice) {
  for (auto i = static_cast<int32_t>(threadIdx.x); i < slice.size; i += block_threads()) {
    const int32_t token = slice.first + i;
    if ((mask[token / 32] >> (token % 32) & 1) == 0) slice.values[i] = -INFINITY;
  }
}

/// Adds biases in the order in which they are listed: a token may be listed more than once.
__device__ void add_biases(const PackedBias* biases, int32_t count, const RowSlice& slice) {
  if (threadIdx.x >= kWarp) return;
  const auto lane = static_cast<int32_t>(threadIdx.x);
  for (int32_t base = 0; base < count; base += kWarp) {
    const bool listed = base + lane < count;
    const PackedBias bias = listed ? biases[base + lane] : PackedBias{-1, 0.0f};
    const int32_t at = bias.token - slice.first;
    const bool mine = listed && at >= 0 && at < slice.size;
    const uint32_t same_token = __match_any_sync(~0u, bias.token);
    const int turn = __popc(same_token & ((1u << lane) - 1));
    const int turns = static_cast<int>(__reduce_max_sync(~0u, mine ? static_cast<uint32_t>(turn + 1) : 0u));
    for (int t = 0; t < turns; ++t) {
      if (mine && t == turn) {
        const float sum = slice.values[at] + bias.bias;
        slice.values[at] = isnan(sum) ? -INFINITY : sum;  // infinity, forbidden
      }
      __syncwarp();
    }
  }
}

/// The operations that the CPU backend rounds, rounded alike: no fused multiply-add.
__device__ float penalised(float logit, const PackedRow& row, int32_t output_count, bool in_prompt) {
  if (in_prompt || output_count > 0) {
    logit =
        logit > 0.0f ? __fdiv_rn(logit, row.repetition_penalty) : __fmul_rn(logit, row.repetition_penalty);
  }
  if (output_count > 0) {
    const float frequency = __fmul_rn(row.frequency_penalty, static_cast<float>(output_count));
    logit = __fsub_rn(logit, __fadd_rn(row.presence_penalty, frequency));
  }
  return logit;
}

/// Counts the tokens that are new in the slice, then penalises those seen, and the pending one as if it were counted.
/// `counts`: of the slice.
__device__ void add_penalties(const PackedRow& row, uint32_t* counts, int32_t pending,
                              const RowSlice& slice) {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  if (thread < row.num_new) {
    const int32_t at = row.new_tokens[thread] - slice.first;
    if (at >= 0 && at < slice.size) atomicAdd(counts + at, kOneOutput);
  }
  __syncthreads();
  for (int32_t i = 4 * thread; i < slice.size; i += 4 * block_threads()) {
    const uint4 four =
        __ldcg(reinterpret_cast<const uint4*>(counts + i));  // not from L1, which atomics pass by
    const uint32_t seen[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint32_t count = seen[k] + (slice.first + i + k == pending ? kOneOutput : 0);
      if (count == 0) continue;
      slice.values[i + k] = penalised(slice.values[i + k], row, static_cast<int32_t>(count / kOneOutput),
                                      (count & kInPrompt) != 0);
    }
  }
}

/// Whether it changed any.
__device__ bool change_logits(const SampleParams& params, const PackedRow& row, const RowSlice& slice) {
  if (row.mask >= 0) {
    forbid_others(params.tables.masks + row.mask * params.tables.mask_words, slice);
    __syncthreads();
  }
  if (row.num_biases > 0) {
    const PackedBias* biases = row.num_biases <= kMaxLooseBiases
                                   ? row.biases
                                   : params.tables.biases + int64_t{row.seat} * kMaxRowBiases;
    add_biases(biases, row.num_biases, slice);
    __syncthreads();
  }
  if (row.is_penalised != 0) {
    const int32_t pending = row.pending_row >= 0 ? params.previous_tokens[row.pending_row] : -1;
    add_penalties(row, params.tables.counts + row.seat * params.tables.stride + slice.first, pending, slice);
    __syncthreads();
  }
  return row.mask >= 0 || row.num_biases > 0 || row.is_penalised != 0;
}

/// Inverse transform over the tokens that top_k, top_p and min_p leave, in the order of their ids. `random`:
/// in [0, 1). In the blocks that do not find the token -1, unless all are `told`.
template <class Search>
__device__ int32_t draw(Search& search, const PackedRow& row, const LogitRange& range, int32_t vocabulary,
                        double random, bool told) {
  const LogitWeight weight(range.largest, row.temperature);
  RowCutoff cutoff;
  if (row.top_k > 0 && row.top_k < vocabulary) {
    cutoff = search.find_cutoff(cutoff, range, TokenWeight{},
                                {.weight = static_cast<RowWeight>(row.top_k) << kWeightBits});
  }
  if (row.top_p < 1.0f) {
    cutoff = search.find_cutoff(cutoff, range, weight, {.share = row.top_p});
  }
  const float min_p = row.min_p;
  // The cut's sums are the draw's but where min_p takes tokens from them, or logits that weigh as much.
  if (row.top_p >= 1.0f || 0.999f * weight(cutoff.logit) < min_p) search.forget_runs();

  const auto weigh = [&](float logit, int32_t token) {
    const float own = weight(logit);
    return cutoff.keeps(logit, token) & (own >= min_p) ? own : 0.0f;
  };
  return search.find_token(
      fmaxf(cutoff.logit, weight.floor()), weigh,
      [&](RowWeight mass) -> RowWeight {
        return min(RowWeight{__double2ull_rd(random * static_cast<double>(mass))}, mass - 1);
      },
      told);
}

/// The drawn token's logprob and the largest ones of the raw logits, which `search` holds.
template <int kGroup, class Search>
class LogprobReport {
 public:
  /// In shared memory.
  struct Memory {
    uint32_t count;
    TopLogprob top[kMaxTopLogprobs];
  };

  __device__ LogprobReport(RowGroup<kGroup>& group, Search& search, Memory& memory)
      : group_(group), search_(search), memory_(memory) {}

  /// `logit`: the drawn token's raw one; `range`: of all. Block 0 writes the result.
  __device__ void write(float logit, const LogitRange& range, int32_t num_top, RowResult& result) {
    const float max = range.largest;
    const RowWeight mass = search_.sum(LogitWeight(max, 1.0f));
    const double normaliser = static_cast<double>(max) + log(static_cast<double>(mass) / kWeightOfOne);
    const auto logprob = [&](float x) { return static_cast<float>(static_cast<double>(x) - normaliser); };

    if (threadIdx.x == 0) memory_.count = 0;
    group_.sync();
    if (num_top > 0) {
      const RowCutoff cutoff = search_.find_cutoff(
          {}, range, TokenWeight{}, {.weight = static_cast<RowWeight>(num_top) << kWeightBits});
      Memory* memory = group_.of_rank(0, &memory_);
      search_.for_each([&](float other, int32_t token) {
        if (other == -INFINITY || !cutoff.keeps(other, token)) return;
        memory->top[atomicAdd(&memory->count, 1u)] = {token, logprob(other)};
      });
      group_.sync();
    }
    if (group_.rank() != 0) return;
    sort_top(result);
    if (threadIdx.x == 0) {
      result.num_top = static_cast<int32_t>(memory_.count);
      result.logprob = logprob(logit);
    }
  }

 private:
  /// Largest logprob first, lower token first among equals.
  __device__ void sort_top(RowResult& result) {
    const uint32_t i = threadIdx.x;
    if (i >= memory_.count) return;
    const TopLogprob own = memory_.top[i];
    uint32_t place = 0;
    for (uint32_t k = 0; k < memory_.count; ++k) {
      const TopLogprob other = memory_.top[k];
      place += other.logprob > own.logprob || (other.logprob == own.logprob && other.token < own.token);
    }
    result.top[place] = own;
  }

  RowGroup<kGroup>& group_;
  Search& search_;
  Memory& memory_;
};

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

template <int kGroup, int kThreads>
__global__ void MINFER_CLUSTER(kGroup)
    __launch_bounds__(kThreads, kThreads == kSharingThreads ? kSampleBlocks : 1)
        sample_kernel(SampleParams params, Stamp stamp) {
  using Search = RowSearch<kGroup, kThreads>;
  using Report = LogprobReport<kGroup, Search>;
  __shared__ typename Search::Memory search_memory;
  __shared__ typename Report::Memory report_memory;
  __shared__ double random;
  extern __shared__ float shared_slice[];
  RowGroup<kGroup> group(search_memory.pass.group);
  group.sync();
  begin_kernel(stamp);
  allow_next_kernel();
  const int32_t row = group.row();
  const int32_t row_of_step = params.first_row + row;
  if (row_of_step >= num_packed_rows(params.packed)) {
    if (group.rank() == 0 && threadIdx.x == 0) params.tokens[row_of_step] = 0;
    return;
  }
  const PackedRow& packed =
      reinterpret_cast<const PackedRow*>(params.packed + sizeof(PackedHeader))[row_of_step];
  const int32_t begin = min(group.rank() * params.slice, params.vocabulary);
  const RowSlice slice{
      params.storage == nullptr ? shared_slice : params.storage + blockIdx.x * int64_t{params.slice}, begin,
      min(begin + params.slice, params.vocabulary) - begin};
  if (threadIdx.x == kThreads - 1) random = uniform(packed.seed, packed.position);
  LogitRange own = load_slice(params, row, slice);
  Search search(group, search_memory, slice);
  if (change_logits(params, packed, slice)) own = search.own_range();

  const LogitRange range = search.range_of(own);
  const bool wants_logprobs = params.logprobs && packed.top_logprobs >= 0;
  const bool is_decided = packed.temperature == 0.0f || fabsf(range.largest) == INFINITY;
  const int32_t token = is_decided ? search.largest().token
                                   : draw(search, packed, range, params.vocabulary, random, wants_logprobs);
  const bool writes = is_decided || wants_logprobs ? group.rank() == 0 : token >= 0;
  if (writes && threadIdx.x == 0) write_token(params, row_of_step, token);
  if (!wants_logprobs || token < 0) return;
  __syncthreads();
  const LogitRange raw = search.range_of(load_slice(params, row, slice));
  Report(group, search, report_memory)
      .write(params.logits[row * params.stride + token], raw, packed.top_logprobs,
             params.results[row_of_step]);
}

int32_t slice_of(int64_t vocabulary, int32_t group) {
  return static_cast<int32_t>((vocabulary + 4 * group - 1) / (4 * group) * 4);
}

/// Also has the kernel take as much of an SM for shared memory as there is, so that several blocks fit.
template <int kGroup, int kThreads>
int64_t shared_bytes_for_slice() {
  cudaFuncAttributes attributes{};
  const auto kernel = sample_kernel<kGroup, kThreads>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        "preparing the sampling kernel");
  check(cudaFuncGetAttributes(&attributes, kernel), "asking for the sampling kernel");
  return device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) -
         static_cast<int64_t>(attributes.sharedSizeBytes);
}

template <int kGroup>
int64_t shared_bytes_for_slice() {
  return std::min(shared_bytes_for_slice<kGroup, kSharingThreads>(),
                  shared_bytes_for_slice<kGroup, kAloneThreads>());
}

}  // namespace

SampleOps::SampleOps(int32_t /*num_sms*/, const StepLimits& limits) {
  if (limits.vocab_size > kMaxVocabulary) {
    require_equal("sample: vocabulary at most", kMaxVocabulary, limits.vocab_size);
  }
  group_ = device_attribute(cudaDevAttrComputeCapabilityMajor) >= 9 ? kMaxGroup : 1;
  const int64_t slice_bytes = slice_of(limits.vocab_size, group_) * int64_t{sizeof(float)};
  const int64_t shared_bytes =
      group_ == 1 ? shared_bytes_for_slice<1>() : shared_bytes_for_slice<kMaxGroup>();
  if (slice_bytes > shared_bytes) {
    storage_ = DeviceBuffer(static_cast<size_t>(limits.logit_slice * group_ * slice_bytes),
                            "logits as sampling changes them");
  }
}

void SampleOps::sample(Launch& launch, const Tensor& logits, int32_t first_row, SampleMode mode,
                       const std::byte* packed, const SamplingTablesView& tables,
                       const int32_t* previous_tokens, int32_t* tokens, std::byte* results) {
  if (logits.dtype != DType::f32) unsupported("sample", "logits of f32", name(logits.dtype));
  if (logits.rows == 0) return;
  const int32_t slice = slice_of(logits.cols, group_);
  const SampleParams params{
      .logits = logits.f32(),
      .stride = logits.stride,
      .first_row = first_row,
      .vocabulary = static_cast<int32_t>(logits.cols),
      .vectors = reinterpret_cast<uintptr_t>(logits.data) % 16 == 0 && logits.stride % 4 == 0,
      .storage = storage_.as<float>(),
      .slice = slice,
      .logprobs = mode.logprobs,
      .packed = packed,
      .tables = tables,
      .previous_tokens = previous_tokens,
      .tokens = tokens,
      .results = reinterpret_cast<RowResult*>(results),
  };
  const dim3 grid(static_cast<uint32_t>(logits.rows * group_));
  const bool greedy = mode.greedy_only && !mode.logprobs;
  const size_t shared_bytes = greedy || params.storage != nullptr ? 0 : slice * sizeof(float);
  const auto run = [&](auto* kernel, int threads) {
    launch("sample", kernel, grid, dim3(static_cast<uint32_t>(threads)), shared_bytes, params);
  };
  if (greedy) return run(group_ == 1 ? greedy_kernel<1> : greedy_kernel<kMaxGroup>, kSharingThreads);
  if (logits.rows * group_ <= launch.num_sms()) {
    return run(group_ == 1 ? sample_kernel<1, kAloneThreads> : sample_kernel<kMaxGroup, kAloneThreads>,
               kAloneThreads);
  }
  run(group_ == 1 ? sample_kernel<1, kSharingThreads> : sample_kernel<kMaxGroup, kSharingThreads>,
      kSharingThreads);
}

}  // namespace minfer::cuda
