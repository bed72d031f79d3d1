#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace minfer::test {

/// Data from outside the project: $MINFER_FIXTURES, or ../shared/fixtures beside the source tree. If it
/// is absent: nullopt, and the test skips.
std::optional<std::filesystem::path> fixtures_dir();

/// The file of a trained model of tests/real/models.txt, which scripts/test_env.sh keeps in $MINFER_TEST_MODELS, or in minfer/models in the
/// user's cache. If it is absent: nullopt, and the test skips.
std::optional<std::filesystem::path> trained_model(const std::string& name);

/// Normalised mean square error: sum (value - reference)^2 / sum reference^2. It is infinite if `value`
/// has NaN or infinity.
double nmse(std::span<const float> value, std::span<const float> reference);
double nmse(std::span<const float> value, std::span<const double> reference);

/// A NAME.logits file: int32 n, int32 vocab, int32 tokens[n], float32 logits[n][vocab], little-endian.
struct GoldenLogits {
  std::vector<int32_t> tokens;
  int32_t vocab = 0;
  std::vector<float> logits;
};
GoldenLogits read_logits(const std::filesystem::path& path);

}  // namespace minfer::test
