// Metrics of requests with draft tokens.
#include <gtest/gtest.h>

#include "engine/options/engine_options.h"
#include "server/serving/engine/metrics.h"

namespace minfer {
namespace {

RequestOutput ended(int32_t output_tokens, const SpeculationCounts& drafted) {
  RequestOutput output;
  output.tokens.resize(static_cast<size_t>(output_tokens));
  output.output_tokens = output_tokens;
  output.finish = FinishReason::length;
  output.drafted = drafted;
  return output;
}

std::string metrics_of(const std::vector<RequestOutput>& outputs) {
  const auto registry = std::make_shared<prometheus::Registry>();
  Metrics metrics("small", EngineOptions{}, registry);
  for (const RequestOutput& output : outputs) {
    TokenTimes times;
    metrics.count_output(output, times);
  }
  return HttpMetrics("small", registry).text(0);
}

/// The value of the line that begins with `name`.
double value_of(const std::string& text, const std::string& name) {
  const size_t line = text.find("\n" + name);
  if (line == std::string::npos) return -1.0;
  return std::stod(text.substr(text.find(' ', line)));
}

TEST(DraftMetrics, SayWhatRequestsGainedByDrafts) {
  const std::string text = metrics_of({
      ended(30, {.drafts = 8, .draft_tokens = 40, .accepted_tokens = 20}),  // 10 steps
      ended(12, {.drafts = 3, .draft_tokens = 10, .accepted_tokens = 0}),
      ended(50, {}),
  });
  EXPECT_EQ(value_of(text, "minfer:request_tokens_per_step_count"), 2.0)
      << "requests without drafts do not count";
  EXPECT_EQ(value_of(text, "minfer:request_tokens_per_step_sum"), 4.0);
  EXPECT_EQ(value_of(text, "minfer:request_draft_acceptance_count"), 2.0);
  EXPECT_EQ(value_of(text, "minfer:request_draft_acceptance_sum"), 0.5);
}

}  // namespace
}  // namespace minfer
