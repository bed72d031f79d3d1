#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/reference/ops.h"
#include "tests/support/isa_scope.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/paged_batch.h"
#include "tests/support/random_data.h"

namespace minfer {
namespace {

using test::DeviceArray;
using test::GuardedTensor;
using test::PagedBatch;
using test::PagedCache;

constexpr float kEps = 1e-5f;

std::vector<float> rms_norm(Backend& backend, const std::vector<float>& x, const std::vector<float>& weight) {
  const int64_t cols = std::ssize(weight);
  const GuardedTensor input(backend, std::ssize(x) / cols, cols, x);
  const GuardedTensor out(backend, std::ssize(x) / cols, cols);
  backend.norm(
      0,
      {.x = input.tensor(), .weight = test::load_vector(backend, weight), .eps = kEps, .out = out.tensor()});
  EXPECT_TRUE(out.intact());
  EXPECT_EQ(input.values(), x);
  return out.values();
}

TEST(RmsNorm, MatchesTheReference) {
  const auto backend = make_cpu_backend(2);
  for (const int64_t cols : {1, 15, 16, 17, 64, 1000, 4096}) {
    for (const int64_t rows : {1, 3, 20}) {
      const std::vector<float> x = test::normal_values(rows * cols, 1, 3.0f);
      const std::vector<float> weight = test::normal_values(cols, 2);
      const reference::Matrix expected =
          reference::rms_norm(reference::to_matrix(x, rows, cols), weight, kEps);
      EXPECT_LT(test::nmse(rms_norm(*backend, x, weight), expected.data), 1e-12) << rows << " x " << cols;
    }
  }
}

TEST(RmsNorm, ZeroRowsStayZeroAndMayBeInPlace) {
  const auto backend = make_cpu_backend(1);
  const std::vector<float> weight(40, 2.0f);
  EXPECT_EQ(rms_norm(*backend, std::vector<float>(40, 0.0f), weight), std::vector<float>(40, 0.0f));
  const std::vector<float> x = test::normal_values(40, 3);
  const GuardedTensor both(*backend, 1, 40, x);
  backend->norm(
      0,
      {.x = both.tensor(), .weight = test::load_vector(*backend, weight), .eps = kEps, .out = both.tensor()});
  EXPECT_EQ(both.values(), rms_norm(*backend, x, weight));
}

TEST(RmsNorm, GivesTheSameBitsForRowsThreadsAndInstructionSets) {
  const int64_t cols = 1003;
  const std::vector<float> x = test::normal_values(40 * cols, 1);
  const std::vector<float> weight = test::normal_values(cols, 2);
  const std::vector<float> expected = rms_norm(*make_cpu_backend(1), x, weight);
  const std::vector<float> last_row(x.end() - cols, x.end());
  EXPECT_EQ(rms_norm(*make_cpu_backend(1), last_row, weight),
            std::vector<float>(expected.end() - cols, expected.end()));
  for (const std::string& isa : test::IsaScope::available()) {
    const test::IsaScope scope(isa);
    for (const int32_t threads : {1, 2, 3}) {
      EXPECT_EQ(rms_norm(*make_cpu_backend(threads), x, weight), expected)
          << isa << ", " << threads << " threads";
    }
  }
}

TEST(RmsNorm, RefusesAWeightOfAnotherSize) {
  const auto backend = make_cpu_backend(1);
  EXPECT_THROW(
      {
        const GuardedTensor x(*backend, 1, 8, std::vector<float>(8));
        const std::vector<float> weight(7);
        backend->norm(
            0,
            {.x = x.tensor(), .weight = test::load_vector(*backend, weight), .eps = kEps, .out = x.tensor()});
      },
      Error);
}

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

struct RopeCase {
  int32_t heads = 4;
  int32_t kv_heads = 2;
  int32_t head_size = 64;
  int32_t rotary_size = 64;
  int32_t block_size = 16;
  RopePairing pairing = RopePairing::interleaved;
  DType dtype = DType::f32;
  bool norms = false;
  bool layer_norms = false;   ///< with weights for each head
  bool spoils_norms = false;  ///< one row too few
  int32_t v_head_size = 0;    ///< 0: as head_size
  double base = 10000.0;      ///< base of the table of angles
  bool scales_q = false;      ///< by position
  bool norms_values = false;
  bool v_is_k = false;
  bool norms_last = false;  ///< behind the rotation

  int32_t value_size() const { return v_head_size > 0 ? v_head_size : head_size; }
};

/// The outputs of the op: q and, for every token, its rows of the cache.
struct Rotated {
  std::vector<float> q, k, v;
  bool operator==(const Rotated&) const = default;
};

constexpr int32_t kPositions = 200;
const std::vector<test::SequenceShape> kSequences{{100, 1}, {17, 17}, {1, 1}, {40, 5}};

class RopeRun {
 public:
  explicit RopeRun(const RopeCase& rope)
      : rope_(rope),
        head_cols_(int64_t{rope.heads + rope.kv_heads} * rope.head_size +
                   (rope.v_is_k ? 0 : int64_t{rope.kv_heads} * rope.value_size())),
        q_norm_(test::normal_values((rope.layer_norms ? rope.heads : 1) * rope.head_size, 11)),
        k_norm_(test::normal_values((rope.layer_norms ? rope.kv_heads : 1) * rope.head_size, 12)),
        v_norm_(test::normal_values(rope.value_size(), 14)),
        q_scale_(test::normal_values(kPositions, 13)) {
    for (int32_t p = 0; p < kPositions; ++p) {
      for (int32_t i = 0; i < rope.rotary_size / 2; ++i) {
        const double angle = p * std::pow(rope.base, -2.0 * i / rope.rotary_size);
        cos_sin_.push_back(static_cast<float>(std::cos(angle)));
        cos_sin_.push_back(static_cast<float>(std::sin(angle)));
      }
    }
  }

  Rotated on(Backend& backend) {
    const PagedBatch batch(backend, kSequences, rope_.block_size, 3);
    const int32_t tokens = batch.batch().num_tokens;
    const PagedCache k(backend, batch, rope_.dtype, rope_.kv_heads, rope_.head_size);
    const PagedCache v(backend, batch, rope_.dtype, rope_.kv_heads, rope_.value_size());
    qkv_ = test::normal_values(tokens * head_cols_, 5);
    const GuardedTensor qkv(backend, tokens, head_cols_, qkv_);
    const DeviceArray<float> cos_sin(backend, cos_sin_);
    RopeKvWriteArgs args;
    args.qkv = qkv.tensor();
    args.heads = rope_.heads;
    args.rotary_size = rope_.rotary_size;
    args.pairing = rope_.pairing;
    args.cos_sin = cos_sin.data();
    if (rope_.norms) {
      args.q_norm = test::load_vector(backend, q_norm_);
      args.k_norm = test::load_vector(backend, k_norm_);
      args.norm_eps = kEps;
    }
    if (rope_.layer_norms) {
      args.layer_norms = true;
      for (Weight* norm : {&args.q_norm, &args.k_norm}) {
        norm->rows = norm->cols / rope_.head_size;
        norm->cols = rope_.head_size;
      }
      if (rope_.spoils_norms) --args.k_norm.rows;
    }
    if (rope_.norms_values) {
      args.v_norm = test::load_vector(backend, v_norm_);
      args.norm_eps = kEps;
    }
    args.v_is_k = rope_.v_is_k;
    args.norms_last = rope_.norms_last;
    args.kv = {k.data(),         v.data(),       rope_.dtype,     batch.num_blocks(),
               rope_.block_size, rope_.kv_heads, rope_.head_size, rope_.v_head_size};
    const DeviceArray<float> q_scale(backend, q_scale_);
    if (rope_.scales_q) args.q_scale = q_scale.data();
    backend.rope_kv_write(0, batch.batch(), args);
    EXPECT_TRUE(qkv.intact());
    return collect(batch, qkv.values(), k, v);
  }

  /// The expected outputs of on(), in double.
  reference::Matrix expected_q() const {
    reference::Matrix q = expected(0, rope_.heads, rope_.head_size, rope_.norms ? &q_norm_ : nullptr, true);
    for (int64_t t = 0; rope_.scales_q && t < q.rows; ++t) {
      for (int64_t i = 0; i < q.cols; ++i)
        q.at(t, i) *= q_scale_[static_cast<size_t>(positions_[static_cast<size_t>(t)])];
    }
    return q;
  }
  reference::Matrix expected_k() const {
    return expected(rope_.heads * rope_.head_size, rope_.kv_heads, rope_.head_size,
                    rope_.norms ? &k_norm_ : nullptr, true);
  }
  reference::Matrix expected_v() const {
    const int32_t first_head = rope_.v_is_k ? rope_.heads : rope_.heads + rope_.kv_heads;
    return expected(first_head * rope_.head_size, rope_.kv_heads, rope_.value_size(),
                    rope_.norms_values ? &v_norm_ : nullptr, false);
  }

 private:
  Rotated collect(const PagedBatch& batch, const std::vector<float>& qkv, const PagedCache& k,
                  const PagedCache& v) {
    Rotated result;
    std::vector<int64_t> written;
    positions_.clear();
    for (size_t s = 0; s < kSequences.size(); ++s) {
      for (int32_t p = kSequences[s].context - kSequences[s].queries; p < kSequences[s].context; ++p) {
        const auto row = qkv.begin() + std::ssize(positions_) * head_cols_;
        result.q.insert(result.q.end(), row, row + rope_.heads * rope_.head_size);
        positions_.push_back(p);
        written.push_back(batch.slot(s, p));
        for (int32_t h = 0; h < rope_.kv_heads; ++h) {
          std::ranges::copy(k.row(written.back(), h), std::back_inserter(result.k));
          std::ranges::copy(v.row(written.back(), h), std::back_inserter(result.v));
        }
      }
    }
    EXPECT_TRUE(k.unchanged(written) && v.unchanged(written)) << "wrote to slots of other tokens";
    return result;
  }

  /// `first_col` is a column of qkv.
  reference::Matrix expected(int64_t first_col, int32_t heads, int64_t size, const std::vector<float>* norm,
                             bool rotate) const {
    reference::Matrix out(std::ssize(positions_), heads * size);
    for (int64_t t = 0; t < out.rows; ++t) {
      for (int64_t h = 0; h < heads; ++h) {
        const std::span<const float> values(qkv_.data() + t * head_cols_ + first_col + h * size,
                                            static_cast<size_t>(size));
        reference::Matrix head = reference::to_matrix(values, 1, size);
        const size_t at = static_cast<size_t>(positions_[t] * rope_.rotary_size);
        const std::span<const float> cos_sin(cos_sin_.data() + at, static_cast<size_t>(rope_.rotary_size));
        if (rotate && rope_.norms_last) reference::rotate_head(head.data, cos_sin, rope_.pairing);
        const bool of_each = rope_.layer_norms && rotate;
        for (const double mean = of_each ? mean_of(head.data) : 0.0; double& element : head.data)
          element -= mean;
        if (norm != nullptr) {
          const auto first = static_cast<size_t>(of_each ? h * size : 0);
          head = reference::rms_norm(head, std::span(*norm).subspan(first, static_cast<size_t>(size)), kEps);
        }
        if (rotate && !rope_.norms_last) reference::rotate_head(head.data, cos_sin, rope_.pairing);
        for (int64_t d = 0; d < size; ++d)
          out.at(t, h * size + d) = head.at(0, d);
      }
    }
    return out;
  }

  RopeCase rope_;
  int64_t head_cols_;
  std::vector<float> q_norm_, k_norm_, v_norm_, q_scale_, cos_sin_, qkv_;
  std::vector<int32_t> positions_;
};

void expect_rope(const RopeCase& rope, double kv_limit) {
  RopeRun run(rope);
  const Rotated result = run.on(*make_cpu_backend(2));
  const std::string what = fmt::format("head size {}, values {}, rotary {}, base {}, block {}, {}, norms {}",
                                       rope.head_size, rope.value_size(), rope.rotary_size, rope.base,
                                       rope.block_size, name(rope.dtype), rope.norms);
  EXPECT_LT(test::nmse(result.q, run.expected_q().data), 1e-12) << what;
  EXPECT_LT(test::nmse(result.k, run.expected_k().data), kv_limit) << what;
  EXPECT_LT(test::nmse(result.v, run.expected_v().data), kv_limit) << what;
}

TEST(Rope, MatchesTheReference) {
  for (const RopePairing pairing : {RopePairing::interleaved, RopePairing::halves}) {
    for (const int32_t head_size : {16, 20, 64, 80, 128}) {
      for (const bool norms : {false, true}) {
        RopeCase rope;
        rope.head_size = rope.rotary_size = head_size;
        rope.pairing = pairing;
        rope.norms = norms;
        expect_rope(rope, 1e-12);
      }
    }
  }
}

/// As in Command-R+ and StableLM 2 12B.
TEST(Rope, TakesLayerNormsWithWeightsForEachHead) {
  for (const RopePairing pairing : {RopePairing::interleaved, RopePairing::halves}) {
    for (const int32_t head_size : {16, 20, 128}) {
      expect_rope(
          {.head_size = head_size, .rotary_size = 16, .pairing = pairing, .norms = true, .layer_norms = true},
          1e-12);
    }
  }
  EXPECT_THROW(expect_rope({.norms = true, .layer_norms = true, .spoils_norms = true}, 1e-12), Error);
}

/// As in Hunyuan. The weights differ from element to element, so the order matters.
TEST(Rope, NormsBehindTheRotation) {
  for (const RopePairing pairing : {RopePairing::interleaved, RopePairing::halves}) {
    for (const int32_t head_size : {16, 20, 128}) {
      for (const bool layer_norms : {false, true})
        expect_rope({.head_size = head_size,
                     .rotary_size = 12,
                     .pairing = pairing,
                     .norms = true,
                     .layer_norms = layer_norms,
                     .scales_q = true,
                     .norms_values = true,
                     .norms_last = true},
                    1e-12);
    }
  }
}

TEST(Rope, LeavesTheRestOfAHeadThatIsRotatedInPart) {
  for (const RopePairing pairing : {RopePairing::interleaved, RopePairing::halves}) {
    for (const int32_t rotary_size : {0, 2, 6, 32, 62}) {
      RopeCase rope;
      rope.rotary_size = rotary_size;
      rope.pairing = pairing;
      rope.norms = rotary_size == 6;
      expect_rope(rope, 1e-12);
    }
  }
}

/// Layers have their own tables: another base, another number of rotated elements.
TEST(Rope, TakesTheTableThatItIsGiven) {
  for (const double base : {100.0, 1e6}) {
    for (const int32_t rotary_size : {16, 64})
      expect_rope({.rotary_size = rotary_size, .base = base}, 1e-12);
  }
}

TEST(Rope, ScalesQueriesByTheirPositions) {
  for (const int32_t rotary_size : {0, 64}) {
    for (const bool norms : {false, true})
      expect_rope({.rotary_size = rotary_size, .norms = norms, .scales_q = true}, 1e-12);
  }
}

TEST(Rope, WritesValuesOfAnotherSize) {
  for (const int32_t value_size : {16, 20, 96}) {
    for (const auto& [dtype, limit] : {std::pair{DType::f32, 1e-12}, {DType::f16, 1e-7}})
      expect_rope({.dtype = dtype, .v_head_size = value_size}, limit);
  }
}

/// If values are keys, they are the keys before norm and rotation.
TEST(Rope, NormsValuesAndTakesThemFromKeys) {
  for (const bool norms : {false, true}) {
    for (const bool norms_values : {false, true}) {
      for (const bool v_is_k : {false, true})
        expect_rope({.norms = norms, .norms_values = norms_values, .v_is_k = v_is_k}, 1e-12);
    }
  }
  expect_rope({.dtype = DType::f16, .norms = true, .v_head_size = 20, .norms_values = true}, 1e-7);
  EXPECT_THROW(expect_rope({.v_head_size = 20, .v_is_k = true}, 1e-12), Error);
  EXPECT_THROW(expect_rope({.v_head_size = 1028, .norms_values = true}, 1e-12), Error);
}

/// The same bits as without gates, with q in a tensor of its own; qkv keeps q and gates unchanged.
TEST(Rope, TakesQueriesWithGatesBehindThem) {
  constexpr int64_t kHeads = 3, kSize = 20, kQ = kHeads * kSize, kKv = 2 * kSize;
  for (const bool norms : {false, true}) {
    const auto backend = make_cpu_backend(2);
    const PagedBatch batch(*backend, kSequences, 16, 3);
    const int64_t tokens = batch.batch().num_tokens;
    const std::vector<float> plain = test::normal_values(tokens * (kQ + kKv), 5);
    std::vector<float> gated;
    for (int64_t t = 0; t < tokens; ++t) {
      const auto row = plain.begin() + t * (kQ + kKv);
      for (int64_t h = 0; h < kHeads; ++h) {
        gated.insert(gated.end(), row + h * kSize, row + (h + 1) * kSize);
        gated.insert(gated.end(), kSize, static_cast<float>(h) + 0.5f);
      }
      gated.insert(gated.end(), row + kQ, row + kQ + kKv);
    }
    const std::vector<float> norm = test::normal_values(kSize, 6),
                             angles = test::normal_values(kPositions * 8, 7);
    const DeviceArray<float> cos_sin(*backend, angles);
    const PagedCache k(*backend, batch, DType::f32, 1, kSize), v(*backend, batch, DType::f32, 1, kSize),
        gated_k(*backend, batch, DType::f32, 1, kSize), gated_v(*backend, batch, DType::f32, 1, kSize);
    const auto args_of = [&](const GuardedTensor& qkv, const PagedCache& keys, const PagedCache& values) {
      RopeKvWriteArgs args;
      args.qkv = qkv.tensor();
      args.heads = kHeads;
      args.rotary_size = 8;
      args.pairing = RopePairing::halves;
      args.cos_sin = cos_sin.data();
      args.norm_eps = kEps;
      args.kv = {keys.data(), values.data(), DType::f32, batch.num_blocks(), 16, 1, kSize};
      if (norms) args.q_norm = args.k_norm = test::load_vector(*backend, norm);
      return args;
    };
    const GuardedTensor qkv(*backend, tokens, kQ + kKv, plain),
        with_gates(*backend, tokens, 2 * kQ + kKv, gated);
    const GuardedTensor q_out(*backend, tokens, kQ);
    backend->rope_kv_write(0, batch.batch(), args_of(qkv, k, v));
    RopeKvWriteArgs args = args_of(with_gates, gated_k, gated_v);
    args.q_has_gate = true;
    EXPECT_THROW(backend->rope_kv_write(0, batch.batch(), args), Error) << "q has nowhere to go";
    args.q_out = q_out.tensor();
    backend->rope_kv_write(0, batch.batch(), args);
    EXPECT_TRUE(with_gates.intact() && q_out.intact());
    const std::vector<float> rotated = qkv.values(), left = with_gates.values(), q = q_out.values();
    for (int64_t t = 0; t < tokens; ++t) {
      const auto of_q = rotated.begin() + t * (kQ + kKv);
      EXPECT_TRUE(std::equal(of_q, of_q + kQ, q.begin() + t * kQ)) << t;
      const auto row = left.begin() + t * (2 * kQ + kKv);
      EXPECT_TRUE(std::equal(row, row + 2 * kQ, gated.begin() + t * (2 * kQ + kKv))) << t;
    }
    for (size_t s = 0; s < kSequences.size(); ++s) {
      const int64_t slot = batch.slot(s, kSequences[s].context - 1);
      EXPECT_EQ(gated_k.row(slot, 0), k.row(slot, 0));
      EXPECT_EQ(gated_v.row(slot, 0), v.row(slot, 0));
    }
  }
}

TEST(Rope, WritesAnyBlockSizeAndCacheType) {
  for (const int32_t block_size : {1, 8, 16, 32}) {
    for (const auto& [dtype, limit] :
         {std::pair{DType::f32, 1e-12}, {DType::bf16, 1e-5}, {DType::f16, 1e-7}}) {
      RopeCase rope;
      rope.block_size = block_size;
      rope.dtype = dtype;
      expect_rope(rope, limit);
    }
  }
}

TEST(Rope, GivesTheSameBitsForThreadsAndInstructionSets) {
  RopeCase rope;
  rope.norms = true;
  rope.heads = 32;  // enough elements for several threads
  rope.dtype = DType::bf16;
  RopeRun run(rope);
  const Rotated expected = run.on(*make_cpu_backend(1));
  for (const std::string& isa : test::IsaScope::available()) {
    const test::IsaScope scope(isa);
    for (const int32_t threads : {2, 3})
      EXPECT_EQ(run.on(*make_cpu_backend(threads)), expected) << isa;
  }
}

TEST(Rope, RefusesASlotOutsideTheCache) {
  const auto backend = make_cpu_backend(1);
  const GuardedTensor qkv(*backend, 1, 48, std::vector<float>(48, 1.0f));
  std::vector<float> cache(16);
  RopeKvWriteArgs args;
  args.qkv = qkv.tensor();
  args.heads = 1;
  args.kv = {cache.data(), cache.data(), DType::f32, 1, 1, 1, 16};
  const int32_t position = 0;
  const int32_t slot = 1;
  ForwardBatch batch;
  batch.num_tokens = 1;
  batch.positions = &position;
  batch.slots = &slot;
  EXPECT_THROW(backend->rope_kv_write(0, batch, args), Error);
}

}  // namespace
}  // namespace minfer
