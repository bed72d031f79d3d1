// Latent attention: its cache writes, its products of single heads, and attention over rows that contain their values.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/reference/dequantise.h"
#include "tests/support/attention_run.h"
#include "tests/support/isa_scope.h"
#include "tests/support/latent_kv.h"
#include "tests/support/models/fixtures.h"

namespace minfer {
namespace {

using test::AttentionShape;
using test::DeviceArray;
using test::GuardedTensor;
using test::LatentKvCase;
using test::PagedBatch;
using test::PagedCache;
using test::SequenceShape;

void expect_latent_kv(const LatentKvCase& c, double kv_limit) {
  const auto backend = make_cpu_backend(2);
  const std::vector<SequenceShape> sequences{{100, 1}, {17, 17}, {1, 1}, {40, 5}};
  const PagedBatch batch(*backend, sequences, c.block_size, 3);
  const int32_t tokens = batch.batch().num_tokens;
  const PagedCache k(*backend, batch, c.kv, 1, c.row_size());
  const std::vector<float> q_values = test::normal_values(tokens * c.q_cols(), 5);
  const std::vector<float> kv_values = test::normal_values(int64_t{tokens} * c.row_size(), 6);
  const GuardedTensor q(*backend, tokens, c.q_cols(), q_values),
      kv(*backend, tokens, c.row_size(), kv_values);
  const GuardedTensor q_out(*backend, tokens, c.out_cols());
  const std::vector<float> norm = c.norm();
  const DeviceArray<float> angles(*backend, c.angles());
  LatentKvWriteArgs args{.q = q.tensor(),
                         .kv = kv.tensor(),
                         .q_out = q_out.tensor(),
                         .heads = c.heads,
                         .rotary_size = c.rotary_size,
                         .pairing = c.pairing,
                         .cos_sin = c.rotates ? angles.data() : nullptr,
                         .kv_norm = test::load_vector(*backend, norm),
                         .norm_eps = LatentKvCase::kEps,
                         .kv_layer = {k.data(), k.data(), c.kv, batch.num_blocks(), c.block_size, 1,
                                      c.row_size(), c.latent_size, true}};
  const DeviceArray<float> q_scale(*backend, c.q_scales());
  if (c.scales_q) args.q_scale = q_scale.data();
  backend->latent_kv_write(0, batch.batch(), args);

  const std::string what = fmt::format("{} heads, {} + {} of {} + {}, {}, block {}", c.heads, c.latent_size,
                                       c.rotary_size, c.other_size, c.rotary_size, name(c.kv), c.block_size);
  EXPECT_TRUE(q.intact() && kv.intact() && q_out.intact()) << what;
  const std::vector<float> out = q_out.values(), left = q.values();
  std::vector<float> rows, queries;
  std::vector<double> expected_rows, expected_queries;
  std::vector<int64_t> written;
  size_t token = 0;
  const auto append = [](auto& all, const auto& values) {
    all.insert(all.end(), values.begin(), values.end());
  };
  const auto row_of = [&](const std::vector<float>& values, int64_t cols) {
    return std::span(values).subspan(token * static_cast<size_t>(cols), static_cast<size_t>(cols));
  };
  for (size_t s = 0; s < sequences.size(); ++s) {
    for (int32_t p = sequences[s].context - sequences[s].queries; p < sequences[s].context; ++p, ++token) {
      written.push_back(batch.slot(s, p));
      append(rows, k.row(written.back(), 0));
      append(expected_rows, c.row(row_of(kv_values, c.row_size()), p));
      append(queries, c.others<float>(row_of(left, c.q_cols())));
      append(queries, c.written(row_of(out, c.out_cols())));
      append(expected_queries, c.queries(row_of(q_values, c.q_cols()), p));
    }
  }
  EXPECT_TRUE(k.unchanged(written)) << "wrote to slots of other tokens: " << what;
  EXPECT_LT(test::nmse(rows, expected_rows), kv_limit) << what;
  EXPECT_LT(test::nmse(queries, expected_queries), 1e-12) << what;
}

TEST(LatentKv, MatchesTheReference) {
  for (const RopePairing pairing : {RopePairing::interleaved, RopePairing::halves}) {
    for (const auto& [latent, rotary] : {std::pair{24, 8}, {512, 64}, {17, 2}, {1, 30}})
      expect_latent_kv({.latent_size = latent, .rotary_size = rotary, .pairing = pairing}, 1e-12);
  }
  expect_latent_kv({.heads = 1, .other_size = 0}, 1e-12);
}

/// As in Mistral 4: the elements that are not rotated too, where they lie.
TEST(LatentKv, ScalesQueriesByTheirPositions) {
  for (const int32_t other : {0, 12, 40})
    expect_latent_kv({.rotary_size = 16, .other_size = other, .scales_q = true}, 1e-12);
}

/// As in Kimi Linear.
TEST(LatentKv, RotatesNothingWithoutAngles) {
  for (const bool scales_q : {false, true})
    expect_latent_kv({.rotary_size = 16, .scales_q = scales_q, .rotates = false}, 1e-12);
}

TEST(LatentKv, WritesAnyBlockSizeAndCacheType) {
  for (const int32_t block_size : {1, 8, 12, 32}) {
    expect_latent_kv({.kv = DType::bf16, .block_size = block_size}, 5e-6);
    expect_latent_kv({.kv = DType::f16, .block_size = block_size}, 1e-7);
  }
}

/// Heads of one weight, with columns between them that the product neither reads nor writes.
struct HeadCase {
  DType dtype = DType::f32;
  int64_t heads = 3;
  int64_t rows = 21;
  int64_t cols = 64;
  int64_t x_gap = 4;  ///< columns behind those of a head
  int64_t out_gap = 2;
};

constexpr int64_t kMostTokens = 150;

class HeadRun {
 public:
  explicit HeadRun(const HeadCase& c)
      : c_(c),
        bytes_(test::random_weights(c.dtype, c.heads * c.rows, c.cols, 1)),
        x_(test::normal_values(kMostTokens * x_cols(), 2)) {
    for (size_t i = 0; i < x_.size(); ++i) {
      if (static_cast<int64_t>(i) % (c.cols + c.x_gap) >= c.cols) x_[i] = NAN;
    }
  }

  /// The result [tokens, heads * rows] for the first tokens; checks that the columns between heads are unchanged.
  std::vector<float> on(Backend& backend, int64_t tokens) const {
    const GuardedTensor x(backend, tokens, x_cols(),
                          std::span(x_).first(static_cast<size_t>(tokens * x_cols())));
    const GuardedTensor out(backend, tokens, c_.heads * (c_.rows + c_.out_gap));
    const Weight weight = backend.load({"heads", bytes_.data(), c_.dtype, c_.heads, c_.rows, c_.cols});
    backend.head_linear(0, {.x = x.tensor(), .weight = weight, .out = out.tensor()});
    EXPECT_TRUE(x.intact() && out.intact());
    std::vector<float> found;
    int64_t column = 0;
    for (const float value : out.values()) {
      if (column % (c_.rows + c_.out_gap) < c_.rows) {
        found.push_back(value);
      } else {
        EXPECT_TRUE(std::isnan(value)) << "wrote between heads";
      }
      ++column;
    }
    return found;
  }

  std::vector<double> expected(int64_t tokens) const {
    std::vector<double> all(static_cast<size_t>(tokens * c_.heads * c_.rows));
    for (int64_t h = 0; h < c_.heads; ++h) {
      const size_t head_bytes = static_cast<size_t>(c_.rows) * row_bytes(c_.dtype, c_.cols);
      const reference::Matrix weight = reference::dequantise(
          bytes_.data() + static_cast<size_t>(h) * head_bytes, c_.dtype, c_.rows, c_.cols);
      reference::Matrix x(tokens, c_.cols);
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t k = 0; k < c_.cols; ++k)
          x.at(t, k) =
              static_cast<double>(x_[static_cast<size_t>(t * x_cols() + h * (c_.cols + c_.x_gap) + k)]);
      }
      const reference::Matrix out = reference::linear(x, weight);
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t r = 0; r < c_.rows; ++r)
          all[static_cast<size_t>((t * c_.heads + h) * c_.rows + r)] = out.at(t, r);
      }
    }
    return all;
  }

 private:
  int64_t x_cols() const { return c_.heads * (c_.cols + c_.x_gap); }

  HeadCase c_;
  std::vector<uint8_t> bytes_;
  std::vector<float> x_;
};

TEST(HeadLinear, MatchesTheReference) {
  const auto backend = make_cpu_backend(2);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_0}) {
    for (const int64_t rows : {1, 21, 300}) {
      const HeadRun run({.dtype = dtype, .rows = rows});
      for (const int64_t tokens : {int64_t{1}, int64_t{2}, int64_t{17}, kMostTokens})
        EXPECT_LT(test::nmse(run.on(*backend, tokens), run.expected(tokens)), 1e-12)
            << name(dtype) << ", " << rows << " rows, " << tokens << " tokens";
    }
  }
  const HeadRun single({.heads = 1, .cols = 2055, .x_gap = 0, .out_gap = 0});
  EXPECT_LT(test::nmse(single.on(*backend, 5), single.expected(5)), 1e-12);
}

TEST(HeadLinear, GivesATokenTheSameBitsInAnyBatchOnAnyThreadsAndInstructionSet) {
  const HeadRun run({.heads = 16, .rows = 128, .cols = 512});
  const std::vector<float> all = run.on(*make_cpu_backend(2), kMostTokens);
  for (const int64_t tokens : {1, 2, 33}) {
    const std::vector<float> first(all.begin(), all.begin() + tokens * 16 * 128);
    EXPECT_EQ(run.on(*make_cpu_backend(3), tokens), first) << tokens;
    for (const std::string& isa : test::IsaScope::available()) {
      const test::IsaScope scope(isa);
      EXPECT_EQ(run.on(*make_cpu_backend(1), tokens), first) << isa << ", " << tokens;
    }
  }
}

TEST(HeadLinear, RefusesHeadsThatAreTooNarrow) {
  const auto backend = make_cpu_backend(1);
  const GuardedTensor x(*backend, 1, 3 * 63), out(*backend, 1, 3 * 21);
  const std::vector<uint8_t> bytes = test::random_weights(DType::f32, 3 * 21, 64, 1);
  const Weight weight = backend->load({"heads", bytes.data(), DType::f32, 3, 21, 64});
  EXPECT_THROW(backend->head_linear(0, {.x = x.tensor(), .weight = weight, .out = out.tensor()}), Error);
}

const std::vector<SequenceShape> kLatentMixed{{130, 1}, {40, 1}, {97, 33}, {1, 1}, {80, 80}, {64, 64}};

AttentionShape latent_shape(int32_t heads, int32_t latent, int32_t rotary) {
  return {.heads = heads, .kv_heads = 1, .head_size = latent + rotary, .v_head_size = latent, .v_in_k = true};
}

/// More query heads than a tile has rows, and sizes that are no multiple of the lanes.
TEST(LatentAttention, MatchesTheReference) {
  const auto backend = make_cpu_backend(2);
  for (const auto& [heads, latent, rotary] :
       {std::tuple{16, 512, 64}, {128, 48, 16}, {70, 24, 16}, {4, 17, 2}, {65, 16, 8}}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      AttentionShape shape = latent_shape(heads, latent, rotary);
      shape.dtype = dtype;
      const auto result = run_attention(*backend, shape, kLatentMixed, {1, 2, 3, 4, 5, 6}, true);
      for (size_t s = 0; s < kLatentMixed.size(); ++s)
        EXPECT_LT(test::nmse(result.out[s], result.reference[s]), 1e-12)
            << shape.text() << ", sequence " << s;
    }
  }
}

TEST(LatentAttention, GivesTheSameBitsAloneInABatchAndInChunks) {
  const auto backend = make_cpu_backend(2);
  const AttentionShape shape = latent_shape(70, 24, 16);
  const auto together = run_attention(*backend, shape, kLatentMixed, {1, 2, 3, 4, 5, 6}).out;
  for (size_t s = 0; s < kLatentMixed.size(); ++s)
    EXPECT_EQ(run_attention(*backend, shape, {kLatentMixed[s]}, {s + 1}).out[0], together[s]) << s;
  for (const int32_t chunk : {1, 7, 64}) {
    std::vector<float> rows;
    for (int32_t begin = 0; begin < 80; begin += chunk) {
      const int32_t end = std::min(80, begin + chunk);
      const auto step = run_attention(*backend, shape, {{end, end - begin}}, {5}).out[0];
      rows.insert(rows.end(), step.begin(), step.end());
    }
    EXPECT_EQ(rows, together[4]) << "chunks of " << chunk;
  }
}

}  // namespace
}  // namespace minfer
