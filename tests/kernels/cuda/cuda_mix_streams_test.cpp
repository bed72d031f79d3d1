// Residual streams that mix, on CUDA.
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "tests/support/cuda/cuda_data.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/stream_mixes.h"

namespace minfer {
namespace {

using test::CudaArray;
using test::CudaTensor;
using test::StreamMix;

class CudaMixStreams : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }

  /// The streams, and x behind them.
  static std::vector<float> run_mix(const StreamMix& mix) {
    const CudaTensor streams(DType::f32, mix.rows, mix.count * mix.cols, mix.streams),
        x(DType::f32, mix.rows, mix.cols, mix.x), routed(DType::f32, mix.rows, mix.count, mix.routed);
    const CudaArray<float> coefs(mix.coefs), weight(mix.weight);
    MixStreamsArgs args{.kind = mix.kind, .streams = streams.tensor(), .x = x.tensor()};
    if (mix.routes()) {
      args.routed = routed.tensor();
      args.scale = StreamMix::kScale;
      args.coefs = {.data = coefs.data(), .rows = mix.num_coefs(), .cols = mix.count};
      if (mix.corrects()) args.weight = {.data = weight.data(), .rows = 1, .cols = mix.cols};
    }
    const test::CudaRun run;
    cuda::Launch launch = run.launch();
    cuda::mix_streams(launch, args);
    run.wait();
    EXPECT_TRUE(streams.intact() && x.intact() && routed.intact()) << mix.text();
    std::vector<float> all = streams.values();
    const std::vector<float> of_x = x.values();
    all.insert(all.end(), of_x.begin(), of_x.end());
    return all;
  }
};

TEST_F(CudaMixStreams, MatchesTheReference) {
  for (const StreamMix& mix : test::stream_mixes())
    EXPECT_LT(test::nmse(run_mix(mix), mix.expected()), 1e-11) << mix.text();
}

TEST_F(CudaMixStreams, GivesATokenTheSameBitsAloneAndInABatch) {
  using Kind = MixStreamsArgs::Kind;
  for (const Kind kind : {Kind::predict, Kind::correct, Kind::match}) {
    const StreamMix mix(kind, 4, 2048, 70);
    StreamMix first = mix;
    first.rows = 1;
    first.streams.resize(4 * 2048);
    first.x.resize(2048);
    first.routed.resize(4);
    const std::vector<float> all = run_mix(mix), alone = run_mix(first);
    EXPECT_TRUE(std::equal(alone.begin(), alone.begin() + 4 * 2048, all.begin()));
    EXPECT_TRUE(std::equal(alone.begin() + 4 * 2048, alone.end(), all.begin() + 70 * 4 * 2048));
  }
}

TEST_F(CudaMixStreams, RefusesShapesThatDoNotFit) {
  const CudaTensor streams(DType::f32, 2, 40, std::vector<float>(80)),
      fifth(DType::f32, 2, 8, std::vector<float>(16)), half(DType::f32, 2, 20, std::vector<float>(40)),
      rounded(DType::bf16, 2, 20, std::vector<float>(40)), odd(DType::f32, 2, 16, std::vector<float>(32)),
      routed(DType::f32, 2, 2, std::vector<float>(4));
  const CudaArray<float> numbers(std::vector<float>(40));
  const test::CudaRun run;
  cuda::Launch launch = run.launch();
  const auto mix = [&](const CudaTensor& x, int64_t coefs) {
    cuda::mix_streams(launch, {.streams = streams.tensor(),
                               .routed = routed.tensor(),
                               .coefs = {.data = numbers.data(), .rows = coefs, .cols = 2},
                               .x = x.tensor()});
  };
  EXPECT_NO_THROW(mix(half, 4));
  EXPECT_THROW(mix(fifth, 4), Error) << "five streams";
  EXPECT_THROW(mix(streams, 4), Error) << "one stream";
  EXPECT_THROW(mix(odd, 4), Error) << "two and a half streams";
  EXPECT_THROW(mix(rounded, 4), Error);
  EXPECT_THROW(mix(half, 2), Error);
  run.wait();
}

}  // namespace
}  // namespace minfer
