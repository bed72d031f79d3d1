// Prompts that begin alike and were computed again: the advice depends on what the engine could have shared.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "profiling/findings/evidence.h"
#include "profiling/findings/rules.h"
#include "tests/support/profiling/sample_profile.h"

namespace minfer {
namespace {

/// The advice on two equal prompts without a hit; "": there is no finding.
std::string advice_on_prefixes(const std::vector<std::pair<std::string, std::string>>& options) {
  ProfileHeader header = test::sample_header();
  header.options.insert(header.options.end(), options.begin(), options.end());
  Evidence evidence;
  evidence.header(header);
  for (const StepSummary& step : test::sample_steps(30))
    evidence.add(step);
  EndedRequest request;
  request.finish = "length";
  request.arrival_ns = 1'000;
  request.end_ns = 10'001'000;
  request.prompt_tokens = 512;
  request.num_prefixes = 6;
  request.prefix_hashes = {1, 2, 3, 4, 5, 6};
  for (const char* id :
       {"first", "second"}) {  // the second one is scheduled when the first has its first token
    request.id = id;
    request.first_scheduled_ns = request.first_token_ns + 1'000;
    request.first_token_ns = request.first_scheduled_ns + 2'000'000;
    evidence.request(request);
  }
  const std::vector<Finding> all = find_all(evidence);
  const auto found = std::ranges::find(all, "prefix not cached", &Finding::rule);
  return found == all.end() ? "" : found->advice;
}

TEST(PrefixRule, AdvisesACacheWhereTheModelCanHaveOne) {
  EXPECT_EQ(advice_on_prefixes({{"enable_prefix_caching", "false"}}), "set --enable-prefix-caching");
  EXPECT_THAT(advice_on_prefixes({{"enable_prefix_caching", "true"}}),
              testing::HasSubstr("enlarge the KV cache"));
  EXPECT_THAT(advice_on_prefixes({{"enable_prefix_caching", "true"}}),
              testing::Not(testing::HasSubstr("copies")));
  EXPECT_THAT(advice_on_prefixes({{"enable_prefix_caching", "true"}, {"is_recurrent", "true"}}),
              testing::HasSubstr(", keep more copies of states (--num-state-copies)"));
  EXPECT_EQ(advice_on_prefixes({{"enable_prefix_caching", "false"}, {"is_recurrent", "true"}}),
            "set --enable-prefix-caching, with room for --num-state-copies");
}

}  // namespace
}  // namespace minfer
