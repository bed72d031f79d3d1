#include "profiling/findings/measured_pairs.h"

#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"

namespace minfer {
namespace {

TEST(MeasuredPairs, AreThoseOfTheResultFilesAndLieInTheRangesThatTheyGive) {
  size_t seen = 0, inside = 0;
  for (const std::string name :
       {"findings-cpu-2026-11-28-fit", "findings-h200-2026-11-28-fit", "tried-pairs"}) {
    std::ifstream file(source_path(fmt::format("tests/benchmarks/results/{}.jsonl", name)));
    for (std::string line; std::getline(file, line);) {
      const auto result = nlohmann::json::parse(line);
      if (!result.contains("real_gain") || result.at("first") != result.at("expected")) continue;
      const bool on_gpu = result.value("on_gpu", name.find("h200") != std::string::npos);
      const std::span<const MeasuredPair> pairs = measured_pairs();
      ASSERT_LT(seen, pairs.size());
      const MeasuredPair& pair = pairs[seen++];
      EXPECT_EQ(pair.rule, result.at("first").get<std::string>());
      EXPECT_EQ(pair.on_gpu, on_gpu);
      EXPECT_EQ(pair.estimated, result.at("estimated_gain").get<double>());
      EXPECT_EQ(pair.measured, result.at("real_gain").get<double>());
      const auto own = result.at("estimated_range").get<std::vector<double>>();
      const GainRange likely = pair.is_fitted ? likely_gain(pair.estimated, on_gpu)
                                              : GainRange{.from = own.at(0), .to = own.at(1)};
      inside += pair.measured >= likely.from - 1e-9 && pair.measured <= likely.to + 1e-9 ? 1 : 0;
    }
  }
  EXPECT_EQ(seen, measured_pairs().size());
  EXPECT_GE(static_cast<double>(inside), 0.8 * static_cast<double>(seen));
}

}  // namespace
}  // namespace minfer
