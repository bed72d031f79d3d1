#pragma once

#include <cstdint>

#include "kernels/cuda/sampling/row_draw.cuh"
#include "kernels/cuda/sampling/row_logits.cuh"
#include "kernels/cuda/sampling/slice_copies.cuh"

namespace minfer::cuda {

__device__ __forceinline__ int32_t num_packed_rows(const std::byte* packed) {
  return reinterpret_cast<const PackedHeader*>(packed)->num_rows;
}

/// One thread calls it.
__device__ __forceinline__ void write_token(const SampleParams& params, int32_t row, int32_t token) {
  params.tokens[row] = max(token, 0);
  params.results[row].token = token;
  params.results[row].num_top = -1;
}

/// A block's part in the rows that its group takes in turn; a local variable of the kernel. The blocks of a group take the same branches,
/// since these depend on the row or on values that all blocks were told. So no block waits for words that another one does not send.
///
/// A block may be ahead of others: it starts its next row when it no longer needs this row's slice. All meet where the row's largest
/// logit is found, which needs all blocks. Before a block leaves, all have arrived for the last time: nothing is sent to it any more.
template <int kGroup, int kThreads, bool kIsShared>
class RowSampler {
  using Runs = RowRuns<kGroup, kThreads, kIsShared>;
  using Copies = SliceCopies<kThreads>;
  static constexpr auto kRowWords = static_cast<int32_t>(sizeof(PackedRow) / sizeof(uint32_t));
  static_assert(sizeof(PackedRow) % sizeof(uint32_t) == 0 && kRowWords <= kThreads);

 public:
  using Search = RowSearch<kGroup, kThreads, kIsShared>;
  /// In shared memory.
  struct Memory {
    typename Search::Memory search;
    typename Runs::Exchanges exchanges;
    typename Copies::Memory copies;
    PackedRow rows[2];  ///< this row and the next one take turns
    double randoms[kRandoms];
  };

  __device__ RowSampler(const SampleParams& params, Memory& memory, const RowSlice& slice,
                        RowGroup<kGroup>& group, Search& search)
      : params_(params),
        memory_(memory),
        slice_(slice),
        group_(group),
        search_(search),
        runs_(memory.search.runs, memory.exchanges, slice, params.slice),
        copies_(memory.copies, slice, params.padded_slice) {}

  /// Call it before the logits are complete.
  __device__ void prepare() {
    if (thread() == 0) {
      Runs::prepare(memory_.exchanges);
#if __CUDA_ARCH__ >= 900
      if constexpr (kIsShared) {
        Copies::prepare(memory_.copies);
        fence_barriers();
        fence_before_copies();
      }
#endif
    }
    group_.arrive();
  }

  __device__ void sample_rows() {
    const int32_t step = static_cast<int32_t>(gridDim.x) / kGroup;
    int32_t row = group_.row();
    // The row and its parameters are loaded before it is known whether the row exists, so that all loads overlap.
    begin_copies(row);
    const uint32_t word = word_of(row);
    const int32_t num_rows = min(num_packed_rows(params_.packed) - params_.first_row, params_.rows);
    keep_word(0, word);
    __syncthreads();
    const bool has_rows = row < num_rows;
    for (int turn = 0; row < num_rows; row += step, turn ^= 1) {
      const int32_t next = row + step;
      const uint32_t next_word = next < num_rows ? word_of(next) : 0;
      sample_row(row, next < num_rows ? next : -1, memory_.rows[turn]);
      keep_word(turn ^ 1, next_word);
#if __CUDA_ARCH__ >= 900
      if constexpr (kIsShared) fence_before_copies();
#endif
      __syncthreads();
      if (next < num_rows) begin_copies(next);
    }
    if (!has_rows) end_copies();
    for (; row < params_.rows; row += step) {
      if (group_.rank() == 0 && thread() == 0) params_.tokens[params_.first_row + row] = 0;
    }
    arrive_behind_searches();
    wait_for_searches();
  }

 private:
  __device__ static int32_t thread() {
    return static_cast<int32_t>(threadIdx.x);
  }

  __device__ uint32_t word_of(int32_t row) const {
    const auto* words = reinterpret_cast<const uint32_t*>(params_.packed + sizeof(PackedHeader)) +
                        int64_t{params_.first_row + row} * kRowWords;
    return thread() < kRowWords ? words[thread()] : 0;
  }
  /// Visible after a barrier of the block.
  __device__ void keep_word(int turn, uint32_t word) {
    if (thread() < kRowWords) reinterpret_cast<uint32_t*>(&memory_.rows[turn])[thread()] = word;
  }

  __device__ const float* logits(int32_t row) const {
    return params_.logits + row * params_.stride;
  }
  /// Starts the copies of the row's logits, if they come by bulk copies.
  __device__ void begin_copies(int32_t row) {
#if __CUDA_ARCH__ >= 900
    if constexpr (kIsShared) {
      if (params_.bulk && thread() == 0) copies_.begin(logits(row));
    }
#endif
  }
  __device__ void end_copies() {
#if __CUDA_ARCH__ >= 900
    if constexpr (kIsShared) {
      if (params_.bulk) copies_.largest();
    }
#endif
  }
  /// Loads the row's logits; others see them after a barrier of the block. Returns this thread's largest. `next`: the next row, or -1.
  __device__ float load(int32_t row, int32_t next) {
#if __CUDA_ARCH__ >= 900
    if constexpr (kIsShared) {
      if (params_.bulk) {
        const float largest = copies_.largest();
        if (next >= 0 && thread() == 0) copies_.prefetch(logits(next));
        return largest;
      }
    }
#endif
    return load_slice<kThreads>(params_, row, slice_);
  }

  /// Searches use the memory to which other blocks send results of the next row, so no block sends before all have searched.
  __device__ void arrive_behind_searches() {
    if (!has_arrived_) group_.arrive();
    has_arrived_ = true;
  }
  __device__ void wait_for_searches() {
    if (has_arrived_) group_.wait();
    has_arrived_ = false;
  }

  __device__ void sample_row(int32_t row, int32_t next, const PackedRow& packed) {
    float own = load(row, next);
    if (changes_logits(packed)) {
      __syncthreads();
      change_logits(params_, packed, slice_);
      own = search_.own_range().largest;
    }
    wait_for_searches();
    runs_.tell_largest(own);
    // They are written behind the block's arrival: a reader waits for one more barrier.
    if (thread() >= kThreads - static_cast<int32_t>(kRandoms)) {
      const auto attempt = static_cast<uint32_t>(thread()) % kRandoms;
      memory_.randoms[attempt] = uniform(packed.seed, packed.position, attempt);
    }
    runs_.wait_for_all();
    draw(row, packed, runs_.largest());
  }

  __device__ void draw(int32_t row, const PackedRow& packed, float largest) {
    const bool wants_logprobs = params_.logprobs && packed.top_logprobs >= 0;
    const int32_t row_of_step = params_.first_row + row;
    int32_t token;
    bool writes = group_.rank() == 0 && thread() == 0;  // if all blocks know the token
    bool searches = wants_logprobs;
    if (packed.temperature == 0.0f || fabsf(largest) == INFINITY) {
      token = search_.largest().token;
    } else if (packed.top_k > 0 && packed.top_k < params_.vocabulary) {
      token = draw_within_top_k(group_, search_, runs_, packed, largest, memory_.randoms[0], wants_logprobs);
      if (!wants_logprobs) writes = thread() == 0 && token >= 0;
      searches = true;
    } else {
      token = draw_by_tries(runs_, packed, largest, memory_.randoms, wants_logprobs);
      if (!wants_logprobs && !may_reject(packed)) writes = thread() % kWarpSize == 0 && token >= 0;
    }
    if (writes) write_token(params_, row_of_step, token);
    if (wants_logprobs && token >= 0) {
      runs_.tell_largest(load_slice<kThreads>(params_, row, slice_));
      runs_.wait_for_all();
      report_logprobs(group_, search_, runs_, runs_.largest(), logits(row)[token], packed.top_logprobs,
                      params_.results[row_of_step]);
    }
    if (searches) arrive_behind_searches();
  }

  const SampleParams& params_;
  Memory& memory_;
  RowSlice slice_;
  RowGroup<kGroup>& group_;
  Search& search_;
  Runs runs_;
  Copies copies_;
  bool has_arrived_ = true;  ///< at the group's barrier: prepare() arrives
};

}  // namespace minfer::cuda
