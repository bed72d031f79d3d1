#pragma once

#include <cstdint>
#include <string_view>

#include <omp.h>

#include "kernels/cpu/product_kernels.h"
#include "kernels/cpu/workspace.h"
#include "kernels/tensor_view.h"

/// What the weight products share: how work is divided, and the product of a few weight rows with all tokens.
namespace minfer::cpu {

/// What is multiplied between two epilogues: so many rows of a weight with so many tokens. The packed tokens
/// of a column block (512 KiB) and the sums (240 KiB for two weights) stay in the second-level cache; the
/// rows are enough to make up for reading the tokens from beyond it, the tokens for reading the rows.
inline constexpr int64_t kPassRows = 240;  // a multiple of all tile_rows and of a cache line
inline constexpr int64_t kPassTokens = 128;

struct RowRange {
  int64_t begin;
  int64_t end;

  int64_t size() const { return end - begin; }
};

/// The rows of thread `thread` of `threads`: contiguous, in units of 16 so that no two threads write to one
/// cache line.
RowRange rows_of_thread(int64_t rows, int32_t thread, int32_t threads);

/// Calls body(thread, threads) on every thread of one parallel region; `body` may use barrier() and must not
/// throw.
template <class Body>
void run_parallel(int32_t threads, const Body& body) {
#pragma omp parallel num_threads(threads)
  body(omp_get_thread_num(), omp_get_num_threads());
}

/// Waits for the other threads of the region.
inline void barrier() {
#pragma omp barrier
}

/// Calls body(RowRange) for pieces of at most kPassRows rows.
template <class Body>
void for_each_pass(RowRange rows, const Body& body) {
  for (int64_t row = rows.begin; row < rows.end; row += kPassRows) {
    body(RowRange{row, row + kPassRows < rows.end ? row + kPassRows : rows.end});
  }
}

/// The tokens that a weight matrix is multiplied with: x[t] points to the elements of token t. Two and more
/// are read from their packed copy, a single one from x.
struct TokenSet {
  const float* const* x;
  PackedTokens packed;

  int64_t size() const { return packed.tokens; }
};

/// The working memory of one op: pointers to its tokens, their packed copies, and for each thread a panel and
/// two arrays of sums. Lies in the workspace, so there is one at a time.
class ProductMemory {
 public:
  /// For `tokens` tokens of `cols` columns in all, and `extra_bytes` of the op's own.
  ProductMemory(Workspace& workspace, int64_t tokens, int64_t cols, int32_t threads, size_t extra_bytes = 0);

  /// [tokens] for the op to fill before it makes token sets.
  const float** x() const { return x_; }
  void* extra() const { return extra_; }
  /// [kPanelFloats]
  float* panel(int32_t thread) const { return scratch_ + thread * scratch_floats_; }
  /// [kPassTokens, kPassRows]; `which` is 0 or 1.
  float* sums(int32_t thread, int which) const { return panel(thread) + kPanelFloats + which * pass_sums_; }

  /// Calls body(first, TokenSet) for sets of at most kPassTokens of the tokens [begin, begin + count) of x();
  /// `first` is the place of the set's first token in x().
  template <class Body>
  void for_each_token_set(const ProductKernels& kernels, int64_t begin, int64_t count,
                          const Body& body) const {
    const int64_t sets = (count + kPassTokens - 1) / kPassTokens;
    for (int64_t i = 0; i < sets; ++i) {
      const int64_t first = begin + i * count / sets;
      body(first, token_set(kernels, first, begin + (i + 1) * count / sets - first));
    }
  }
  /// Packs this thread's share of the tokens [begin, begin + count), as for_each_token_set will want them. A
  /// barrier belongs between this and the products.
  void pack(const ProductKernels& kernels, int64_t begin, int64_t count, int32_t thread,
            int32_t threads) const;

 private:
  TokenSet token_set(const ProductKernels& kernels, int64_t begin, int64_t count) const;

  int64_t cols_;
  int64_t padded_cols_;
  int64_t pass_sums_;       ///< floats of an array of sums
  int64_t scratch_floats_;  ///< of a thread
  float* scratch_;
  float* packed_;
  const float** x_;
  void* extra_;
};

/// sums[t * kPassRows + r] = row (range.begin + r) of matrix `index` of `weight` . token t, for at most
/// kPassRows rows. `panel`: see ProductMemory.
void multiply_rows(const ProductKernels& kernels, const Weight& weight, int64_t index, RowRange range,
                   const TokenSet& tokens, float* panel, float* sums);

/// Throws Error unless `weight` is `count` matrices of [rows, cols] whose rows are whole blocks.
void check_weight(std::string_view what, const Weight& weight, int64_t count, int64_t rows, int64_t cols);

}  // namespace minfer::cpu
