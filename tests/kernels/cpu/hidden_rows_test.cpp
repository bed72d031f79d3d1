// Hidden states of last positions on the CPU backend: against a map, from step to step, in slots of any content.
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/support/hidden_rows_steps.h"
#include "tests/support/models/fixtures.h"

namespace minfer {
namespace {

using test::DeviceArray;
using test::GuardedTensor;
using test::HiddenStep;

std::vector<float> run_step(Backend& backend, const HiddenRing& ring, int64_t cols, const HiddenStep& step,
                            const std::vector<float>& x) {
  const test::PagedBatch paged(backend, step.sequences, 16, 1);
  const DeviceArray<int32_t> slots(backend, step.slots);
  ForwardBatch batch = paged.batch();
  batch.state_slots = slots.data();
  const GuardedTensor in(backend, batch.num_tokens, cols, x), out(backend, batch.num_tokens, cols);
  backend.hidden_rows(0, batch,
                      {.x = step.has_x ? in.tensor() : Tensor{}, .out = out.tensor(), .ring = ring});
  backend.hidden_rows(0, batch, {.x = in.tensor(), .ring = ring});
  EXPECT_TRUE(in.intact() && out.intact());
  return out.values();
}

TEST(HiddenRows, AreThoseOfThePositionsInFront) {
  for (const int32_t threads : {1, 2}) {
    const auto backend = make_cpu_backend(threads);
    for (const int64_t cols : {1, 5, 64, 1030}) {
      const auto size = static_cast<size_t>(4 * HiddenRing::kRows * cols);
      const DeviceArray<float> memory(*backend,
                                      std::vector<float>(size, std::numeric_limits<float>::quiet_NaN()));
      test::expect_hidden_steps(cols, [&](const HiddenStep& step, const std::vector<float>& x) {
        return run_step(*backend, {memory.data(), 4}, cols, step, x);
      });
    }
  }
}

TEST(HiddenRows, RefuseWhatDoesNotFit) {
  const auto backend = make_cpu_backend(1);
  const DeviceArray<float> memory(*backend, std::vector<float>(2 * HiddenRing::kRows * 4));
  for (const int32_t slot : {-1, 2})
    EXPECT_THROW(run_step(*backend, {memory.data(), 2}, 4, {{{1, 1}}, {slot}}, std::vector<float>(4)), Error);
}

}  // namespace
}  // namespace minfer
