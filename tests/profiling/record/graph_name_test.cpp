#include <gtest/gtest.h>

#include "profiling/record/step_record.h"

namespace minfer {
namespace {

TEST(GraphName, SaysThePhaseAndTheSequences) {
  EXPECT_EQ(graph_name(StepPhase::decode, 32), "decode_b32");
  EXPECT_EQ(graph_name(StepPhase::prefill, 2), "prefill_b2");
  EXPECT_EQ(sequences_of_graph("decode_b32"), 32);
  EXPECT_EQ(sequences_of_graph("prefill_b2"), 2);
  for (const char* none :
       {"", "decode", "decode_b", "decode_b0", "decode_b-1", "decode_b2x", "mixed_b2", "prefill_b"})
    EXPECT_EQ(sequences_of_graph(none), 0) << none;
}

}  // namespace
}  // namespace minfer
