// Residual streams that mix, on the CPU backend.
#include <limits>

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/support/isa_scope.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/paged_batch.h"
#include "tests/support/stream_mixes.h"

namespace minfer {
namespace {

using test::GuardedTensor;
using test::StreamMix;
using StreamKind = MixStreamsArgs::Kind;

/// The streams, and x behind them.
std::vector<float> run_mix(Backend& backend, const StreamMix& mix) {
  const GuardedTensor streams(backend, mix.rows, mix.count * mix.cols, mix.streams),
      x(backend, mix.rows, mix.cols, mix.x), routed(backend, mix.rows, mix.count, mix.routed);
  MixStreamsArgs args{.kind = mix.kind, .streams = streams.tensor(), .x = x.tensor()};
  if (mix.routes()) {
    args.routed = routed.tensor();
    args.scale = StreamMix::kScale;
    args.coefs = {.data = mix.coefs.data(), .rows = mix.num_coefs(), .cols = mix.count};
    if (mix.corrects()) args.weight = test::load_vector(backend, mix.weight);
  }
  backend.mix_streams(0, args);
  EXPECT_TRUE(streams.intact() && x.intact() && routed.intact()) << mix.text();
  std::vector<float> all = streams.values();
  const std::vector<float> of_x = x.values();
  all.insert(all.end(), of_x.begin(), of_x.end());
  return all;
}

TEST(MixStreams, MatchesTheReference) {
  const auto backend = make_cpu_backend(2);
  for (const StreamMix& mix : test::stream_mixes())
    EXPECT_LT(test::nmse(run_mix(*backend, mix), mix.expected()), 1e-12) << mix.text();
}

TEST(MixStreams, GivesTheSameBitsForRowsThreadsAndInstructionSets) {
  for (const StreamKind kind : {StreamKind::predict, StreamKind::correct, StreamKind::match}) {
    const StreamMix mix(kind, 4, 1003, 9);
    const std::vector<float> expected = run_mix(*make_cpu_backend(1), mix);
    StreamMix first = mix;
    first.rows = 1;
    std::vector<float> alone(expected.begin(), expected.begin() + 4 * 1003);
    alone.insert(alone.end(), expected.begin() + 9 * 4 * 1003, expected.begin() + (9 * 4 + 1) * 1003);
    first.streams.resize(4 * 1003);
    first.x.resize(1003);
    first.routed.resize(4);
    EXPECT_EQ(run_mix(*make_cpu_backend(1), first), alone);
    for (const std::string& isa : test::IsaScope::available()) {
      const test::IsaScope scope(isa);
      EXPECT_EQ(run_mix(*make_cpu_backend(3), mix), expected) << isa;
    }
  }
}

TEST(MixStreams, RefusesShapesThatDoNotFit) {
  const auto backend = make_cpu_backend(1);
  const GuardedTensor streams(*backend, 2, 40, std::vector<float>(80)),
      x(*backend, 2, 8, std::vector<float>(16)), half(*backend, 2, 20, std::vector<float>(40)),
      odd(*backend, 2, 16, std::vector<float>(32)), routed(*backend, 2, 2, std::vector<float>(4));
  const std::vector<float> numbers(40);
  const auto refuses = [&](const Tensor& x_of, Weight coefs, const Tensor& routed_of) {
    EXPECT_THROW(backend->mix_streams(
                     0, {.streams = streams.tensor(), .routed = routed_of, .coefs = coefs, .x = x_of}),
                 Error);
  };
  const Weight coefs{.data = numbers.data(), .rows = 4, .cols = 2};
  backend->mix_streams(
      0, {.streams = streams.tensor(), .routed = routed.tensor(), .coefs = coefs, .x = half.tensor()});
  refuses(x.tensor(), coefs, routed.tensor());        // five streams
  refuses(odd.tensor(), coefs, routed.tensor());      // two and a half
  refuses(streams.tensor(), coefs, routed.tensor());  // one
  refuses(half.tensor(), coefs, x.tensor());          // eight numbers of the router
  refuses(half.tensor(), {.data = numbers.data(), .rows = 2, .cols = 2}, routed.tensor());  // of correct
  EXPECT_THROW(backend->mix_streams(0, {.kind = StreamKind::correct,
                                        .streams = streams.tensor(),
                                        .routed = routed.tensor(),
                                        .coefs = {.data = numbers.data(), .rows = 2, .cols = 2},
                                        .x = half.tensor()}),
               Error)
      << "without a weight";
}

}  // namespace
}  // namespace minfer
