// Norms other than the plain RMS norm, functions of single elements, and scaled embeddings on the CPU backend.
#include <gtest/gtest.h>

#include "tests/reference/ops.h"
#include "tests/support/isa_scope.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/paged_batch.h"
#include "tests/support/random_data.h"

namespace minfer {
namespace {

using test::GuardedTensor;

struct NormCase {
  reference::NormOptions options;
  bool add_to_out = false;
};

std::vector<NormCase> norm_cases(int64_t cols) {
  const std::vector<float> weight = test::normal_values(cols, 2), bias = test::normal_values(cols, 3);
  return {{{.kind = NormKind::layer, .weight = weight, .eps = 1e-5}},
          {{.kind = NormKind::layer, .weight = weight, .bias = bias, .eps = 1e-5}},
          {{.kind = NormKind::layer, .weight = weight, .bias = bias, .eps = 1e-5, .scale = 0.25}, true},
          {{.kind = NormKind::rms, .weight = weight, .eps = 1e-5}, true},
          {{.kind = NormKind::rms, .weight = weight, .bias = bias, .eps = 1e-5, .scale = 3.0}},
          {{.kind = NormKind::none}},
          {{.kind = NormKind::none, .scale = 0.22}, true},
          {{.kind = NormKind::cut, .cut = 1.6}},
          {{.kind = NormKind::cut, .scale = 0.5, .cut = -0.3}, true}};
}

std::vector<float> run_norm(Backend& backend, const NormCase& c, const std::vector<float>& x, int64_t cols,
                            const std::vector<float>& before) {
  const int64_t rows = std::ssize(x) / cols;
  const GuardedTensor input(backend, rows, cols, x);
  const GuardedTensor out(backend, rows, cols, before);
  const auto vector = [&](const std::vector<float>& values) {
    return values.empty() ? Weight{} : test::load_vector(backend, values);
  };
  backend.norm(0, {.x = input.tensor(),
                   .kind = c.options.kind,
                   .weight = vector(c.options.weight),
                   .bias = vector(c.options.bias),
                   .eps = static_cast<float>(c.options.eps),
                   .cut = static_cast<float>(c.options.cut),
                   .scale = static_cast<float>(c.options.scale),
                   .add_to_out = c.add_to_out,
                   .out = out.tensor()});
  EXPECT_TRUE(out.intact());
  EXPECT_EQ(input.values(), x);
  return out.values();
}

TEST(NormKinds, MatchTheReference) {
  const auto backend = make_cpu_backend(2);
  for (const int64_t cols : {1, 16, 17, 1000, 4096}) {
    for (const int64_t rows : {1, 3, 20}) {
      std::vector<float> x = test::normal_values(rows * cols, 1, 3.0f);
      for (float& value : x)
        value += 5.0f;  // a mean that matters
      const std::vector<float> before = test::normal_values(rows * cols, 4);
      for (size_t i = 0; i < norm_cases(cols).size(); ++i) {
        const NormCase c = norm_cases(cols)[i];
        if (cols == 1 && c.options.kind == NormKind::layer) continue;  // 0 / sqrt(eps)
        if (cols == 1 && c.options.kind == NormKind::cut) continue;    // zeros
        reference::Matrix expected = reference::norm(reference::to_matrix(x, rows, cols), c.options);
        for (size_t at = 0; c.add_to_out && at < before.size(); ++at)
          expected.data[at] += before[at];
        EXPECT_LT(test::nmse(run_norm(*backend, c, x, cols, before), expected.data), 1e-12)
            << "case " << i << ", " << rows << " x " << cols;
      }
    }
  }
}

/// Row r takes the weight of group r mod groups.
TEST(NormKinds, GroupsHaveWeightsOfTheirOwn) {
  const auto backend = make_cpu_backend(2);
  constexpr int64_t kNumRows = 12, kGroups = 3;
  for (const int64_t cols : {1, 17, 64}) {
    const std::vector<float> x = test::normal_values(kNumRows * cols, 1),
                             weights = test::normal_values(kGroups * cols, 2);
    const GuardedTensor in(*backend, kNumRows, cols, x), out(*backend, kNumRows, cols);
    NormArgs args{.x = in.tensor(),
                  .weight = {.data = weights.data(), .rows = kGroups, .cols = cols},
                  .eps = 1e-5f,
                  .out = out.tensor()};
    EXPECT_FALSE(args.is_plain_rms());
    backend->norm(0, args);
    EXPECT_TRUE(out.intact());
    std::vector<double> expected;
    for (int64_t row = 0; row < kNumRows; ++row) {
      const int64_t group = row % kGroups;
      const reference::Matrix of_row = reference::rms_norm(
          reference::to_matrix({x.begin() + row * cols, x.begin() + (row + 1) * cols}, 1, cols),
          {weights.data() + group * cols, static_cast<size_t>(cols)}, 1e-5);
      expected.insert(expected.end(), of_row.data.begin(), of_row.data.end());
    }
    EXPECT_LT(test::nmse(out.values(), expected), 1e-12) << cols;
    args.kind = NormKind::layer;
    EXPECT_THROW(backend->norm(0, args), Error);
  }
}

TEST(NormKinds, GiveTheSameBitsForRowsThreadsAndInstructionSets) {
  const int64_t cols = 1003;
  const std::vector<float> x = test::normal_values(40 * cols, 1), before = test::normal_values(40 * cols, 4);
  for (const NormCase& c : norm_cases(cols)) {
    const std::vector<float> expected = run_norm(*make_cpu_backend(1), c, x, cols, before);
    const std::vector<float> last_x(x.end() - cols, x.end()), last_before(before.end() - cols, before.end());
    EXPECT_EQ(run_norm(*make_cpu_backend(1), c, last_x, cols, last_before),
              std::vector<float>(expected.end() - cols, expected.end()));
    for (const std::string& isa : test::IsaScope::available()) {
      const test::IsaScope scope(isa);
      for (const int32_t threads : {1, 3})
        EXPECT_EQ(run_norm(*make_cpu_backend(threads), c, x, cols, before), expected) << isa;
    }
  }
}

TEST(NormKinds, RefuseAWeightWithoutANormAndAnOutputThatIsX) {
  const auto backend = make_cpu_backend(1);
  const GuardedTensor x(*backend, 1, 8, std::vector<float>(8, 1.0f));
  const Weight weight = test::load_vector(*backend, std::vector<float>(8, 1.0f));
  EXPECT_THROW(
      backend->norm(0, {.x = x.tensor(), .kind = NormKind::none, .weight = weight, .out = x.tensor()}),
      Error);
  EXPECT_THROW(backend->norm(0, {.x = x.tensor(), .kind = NormKind::layer, .out = x.tensor()}), Error);
  EXPECT_THROW(backend->norm(0, {.x = x.tensor(), .weight = weight, .add_to_out = true, .out = x.tensor()}),
               Error);
}

TEST(Activate, MatchesTheReferenceInPlaceToo) {
  const auto backend = make_cpu_backend(2);
  std::vector<float> x = test::normal_values(20 * 1003, 1, 4.0f);
  x[0] = 0.0f;
  x[1] = 60.0f;
  x[2] = -60.0f;
  using Kind = Activation::Kind;
  for (const Activation& activation :
       {Activation{.kind = Kind::gelu_tanh}, Activation{.kind = Kind::gelu},
        Activation{.kind = Kind::soft_cap, .cap = 3.0f}, Activation{.kind = Kind::relu_squared},
        Activation{.kind = Kind::xielu, .positive = 0.8f, .negative = 1.1f, .linear = 0.5f, .eps = -1e-6f}}) {
    std::vector<double> expected;
    for (const float value : x)
      expected.push_back(reference::activated(activation, static_cast<double>(value)));
    const GuardedTensor input(*backend, 20, 1003, x), out(*backend, 20, 1003);
    backend->activate(0, {.x = input.tensor(), .activation = activation, .out = out.tensor()});
    EXPECT_TRUE(out.intact());
    EXPECT_LT(test::nmse(out.values(), expected), 1e-13) << static_cast<int>(activation.kind);
    backend->activate(0, {.x = input.tensor(), .activation = activation, .out = input.tensor()});
    EXPECT_EQ(input.values(), out.values());
  }
}

/// A token that is forbidden by its logit stays so.
TEST(Activate, ASoftCapLeavesMinusInfinity) {
  const auto backend = make_cpu_backend(1);
  const GuardedTensor x(*backend, 1, 3, std::vector<float>{-INFINITY, 0.0f, INFINITY});
  const Activation cap{.kind = Activation::Kind::soft_cap, .cap = 3.0f};
  backend->activate(0, {.x = x.tensor(), .activation = cap, .out = x.tensor()});
  EXPECT_EQ(x.values(), (std::vector<float>{-INFINITY, 0.0f, 3.0f}));
}

TEST(Embed, ScalesItsRows) {
  const auto backend = make_cpu_backend(1);
  const std::vector<float> table = test::normal_values(4 * 8, 1);
  const HostTensor host{.name = "table", .data = table.data(), .rows = 4, .cols = 8};
  const std::vector<int32_t> ids{3, 0};
  const GuardedTensor out(*backend, 2, 8);
  backend->embed(0, {.token_ids = ids.data(),
                     .table = backend->load(host),
                     .vocab_size = 4,
                     .scale = 2.5f,
                     .out = out.tensor()});
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(out.values()[i], 2.5f * table[24 + i]);
    EXPECT_EQ(out.values()[8 + i], 2.5f * table[i]);
  }
}

}  // namespace
}  // namespace minfer
