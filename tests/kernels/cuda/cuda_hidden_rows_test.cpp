// Hidden states of last positions on CUDA: against a map, from step to step, in slots of any content and beside padding.
#include <gtest/gtest.h>

#include "kernels/cuda/delta/delta_ops.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/cuda/cuda_paged_batch.h"
#include "tests/support/hidden_rows_steps.h"

namespace minfer {
namespace {

using test::CudaArray;
using test::CudaTensor;
using test::HiddenStep;

/// The step with a sequence of padding behind its own, of one token.
std::vector<float> run_padded(const HiddenRing& ring, int64_t cols, const HiddenStep& step,
                              const std::vector<float>& x) {
  std::vector<test::CudaSequence> sequences;
  for (const test::SequenceShape& shape : step.sequences)
    sequences.push_back({shape.context, shape.queries});
  sequences.push_back({1, 1});
  std::vector<int32_t> slots = step.slots;
  slots.push_back(-1);
  std::vector<float> padded = x;
  padded.resize(x.size() + static_cast<size_t>(cols), 7.0f);
  const test::CudaPagedBatch paged(sequences, 0, 16, 1);
  const CudaArray<int32_t> device_slots(slots);
  ForwardBatch batch = paged.batch();
  batch.state_slots = device_slots.data();
  const CudaTensor in(DType::f32, batch.num_tokens, cols, padded), out(DType::f32, batch.num_tokens, cols);
  const test::CudaRun run;
  cuda::Launch launch = run.launch();
  cuda::hidden_rows(launch, batch,
                    {.x = step.has_x ? in.tensor() : Tensor{}, .out = out.tensor(), .ring = ring});
  cuda::hidden_rows(launch, batch, {.x = in.tensor(), .ring = ring});
  run.wait();
  EXPECT_TRUE(in.intact() && out.intact());
  std::vector<float> values = out.values();
  for (auto value = values.begin() + static_cast<ptrdiff_t>(x.size()); value != values.end(); ++value)
    EXPECT_EQ(*value, 0.0f);
  values.resize(x.size());
  return values;
}

TEST(CudaHiddenRows, AreThoseOfThePositionsInFront) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  for (const int64_t cols : {1, 5, 64, 1030, 4096}) {
    const CudaArray<float> memory(std::vector<float>(static_cast<size_t>(4 * HiddenRing::kRows * cols),
                                                     std::numeric_limits<float>::quiet_NaN()));
    test::expect_hidden_steps(cols, [&](const HiddenStep& step, const std::vector<float>& x) {
      return run_padded({memory.data(), 4}, cols, step, x);
    });
  }
}

}  // namespace
}  // namespace minfer
