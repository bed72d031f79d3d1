#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/cpu/context/op_context.h"
#include "kernels/cpu/product/product_kernels.h"
#include "kernels/tensor_view.h"

/// Shared by the weight products: how work is divided, and the product of a few weight rows with all tokens.
namespace minfer::cpu {

/// The most rows of a weight and the most tokens that are multiplied between two epilogues. The packed
/// tokens of a column block (512 KiB) and the sums (240 KiB for two weights) stay in the second-level cache.
/// The rows are enough to pay for reading the tokens from beyond it, and the tokens for reading the rows.
inline constexpr int64_t kPassRows = 240;  // a multiple of all tile_rows and of a cache line
inline constexpr int64_t kPassTokens = 128;

/// How the rows of a product are cut into parts of at most kPassRows, in units of 16, so that no two threads
/// write to one cache line. A piece of the op's loop is one part with one set of tokens.
class RowParts {
 public:
  /// For `rows` rows, `products` multiply-adds in all, and `sets` sets of tokens, each of which is a
  /// separate piece.
  RowParts(int64_t rows, int64_t products, int64_t sets, int32_t threads);

  int64_t count() const { return count_; }
  IndexRange operator[](int64_t part) const;

 private:
  int64_t rows_;
  int64_t units_;
  int64_t count_;
};

/// The tokens that a weight matrix is multiplied with: those of ProductMemory::x() from `first` on. x[t]
/// points to the elements of token first + t. Two or more tokens are read from their packed copy, a single
/// one from x.
struct TokenSet {
  int64_t first;
  const float* const* x;
  PackedTokens packed;

  int64_t size() const { return packed.tokens; }
};

/// The working memory of one op: pointers to its tokens, their packed copies, and for each thread a panel and
/// two arrays of sums. It lies in the workspace, so only one exists at a time.
class ProductMemory {
 public:
  /// For `tokens` tokens of `cols` columns in all, and `extra_bytes` for the op's own use.
  ProductMemory(const OpContext& context, int64_t tokens, int64_t cols, size_t extra_bytes = 0);

  /// [tokens]; the op fills it before it makes token sets.
  const float** x() const { return x_; }
  void* extra() const { return extra_; }
  /// [kPanelFloats]
  float* panel(int32_t thread) const { return scratch_ + thread * scratch_floats_; }
  /// [kPassTokens, kPassRows]; `which` is 0 or 1.
  float* sums(int32_t thread, int which) const { return panel(thread) + kPanelFloats + which * pass_sums_; }

  /// The number of sets, of at most kPassTokens each, in which `tokens` tokens are multiplied.
  static int64_t num_sets(int64_t tokens) { return (tokens + kPassTokens - 1) / kPassTokens; }
  /// Set number `set` of the tokens `range` of x().
  TokenSet token_set(const ProductKernels& kernels, IndexRange range, int64_t set) const;
  /// The number of parts in which all tokens are packed.
  int64_t pack_parts(const OpContext& context) const { return pieces_for(tokens_, tokens_ * cols_, context); }
  /// Packs part `part` of `parts` of the tokens `range`, in the form that token_set() refers to. Products need all parts.
  void pack(const ProductKernels& kernels, IndexRange range, int64_t part, int64_t parts) const;

 private:
  int64_t tokens_;
  int64_t cols_;
  int64_t padded_cols_;
  int64_t pass_sums_;       ///< floats of an array of sums
  int64_t scratch_floats_;  ///< of a thread
  float* scratch_;
  float* packed_;
  const float** x_;
  void* extra_;
};

/// Packs `groups` times `tokens` tokens, group after group, and calls body(group, part of the rows, set of its tokens, thread) for
/// each piece of a product of `rows` rows with each group. `products`: multiply-adds in all.
template <class Body>
void for_each_piece(const ProductKernels& kernels, const ProductMemory& memory, int64_t groups,
                    int64_t tokens, int64_t rows, int64_t products, const OpContext& context,
                    const Body& body) {
  const auto tokens_of = [tokens](int64_t group) { return IndexRange{group * tokens, (group + 1) * tokens}; };
  const int64_t pack_parts = memory.pack_parts(context);
  context.pool->parallel_for(pack_parts, [&](int64_t part, int32_t) {
    for (int64_t group = 0; group < groups; ++group)
      memory.pack(kernels, tokens_of(group), part, pack_parts);
  });
  const int64_t sets = ProductMemory::num_sets(tokens);
  const RowParts parts(rows, products, groups * sets, context.pool->threads());
  context.pool->parallel_for(groups * parts.count() * sets, [&](int64_t piece, int32_t thread) {
    const int64_t group = piece / (parts.count() * sets);
    body(group, parts[piece / sets % parts.count()],
         memory.token_set(kernels, tokens_of(group), piece % sets), thread);
  });
}

/// sums[t * kPassRows + r] = row (range.begin + r) of matrix `index` of `weight` . token t, for at most
/// kPassRows rows. `panel`: see ProductMemory.
void multiply_rows(const ProductKernels& kernels, const Weight& weight, int64_t index, IndexRange range,
                   const TokenSet& tokens, float* panel, float* sums);

/// Throws Error unless `weight` is `count` matrices of [rows, cols] whose rows are whole blocks.
void check_weight(std::string_view what, const Weight& weight, int64_t count, int64_t rows, int64_t cols);

}  // namespace minfer::cpu
