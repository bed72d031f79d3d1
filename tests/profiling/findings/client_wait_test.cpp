// Time in which clients take answers, while requests run and after their end.
#include <algorithm>

#include <gtest/gtest.h>

#include "profiling/findings/evidence.h"
#include "profiling/findings/rules.h"
#include "tests/support/profiling/sample_profile.h"

namespace minfer {
namespace {

/// The finding "clients too slow" of a run whose one request took 10 ms: its client waited `wait_ms` of them, and `after_ms` after its
/// end. The gain is 0 if there is no finding.
Finding slow_client(double wait_ms, double after_ms) {
  Evidence evidence;
  evidence.header(test::sample_header());
  for (const StepSummary& step : test::sample_steps(30))
    evidence.add(step);
  EndedRequest request;
  request.id = "request";
  request.finish = "length";
  request.arrival_ns = 1'000;
  request.end_ns = 10'001'000;
  request.client_wait_ns = static_cast<int64_t>(wait_ms * 1e6);
  request.client_wait_after_ns = after_ms < 0.0 ? -1 : static_cast<int64_t>(after_ms * 1e6);
  evidence.request(request);
  const std::vector<Finding> all = find_all(evidence);
  const auto found = std::ranges::find(all, "clients too slow", &Finding::rule);
  return found == all.end() ? Finding{} : *found;
}

TEST(ClientWaitFinding, CountsWhatLiesBehindTheEndToo) {
  EXPECT_EQ(slow_client(0.0, 0.0).gain, 0.0);
  const Finding behind = slow_client(0.0, 30.0);
  EXPECT_NE(behind.evidence.find("waited 75 % of the requests' time"), std::string::npos) << behind.evidence;
  EXPECT_NEAR(behind.gain, 0.75 * (1.0 - 1.0 / 8.0), 1e-9);
  const Finding both = slow_client(5.0, 10.0);
  EXPECT_NE(both.evidence.find("waited 75 %"), std::string::npos) << both.evidence;
  const Finding unknown = slow_client(5.0, -1.0);  // of a file without that number
  EXPECT_NE(unknown.evidence.find("waited 50 %"), std::string::npos) << unknown.evidence;
}

}  // namespace
}  // namespace minfer
