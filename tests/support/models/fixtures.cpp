#include "tests/support/models/fixtures.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <stdexcept>

#include "tests/support/paths.h"

namespace minfer::test {
namespace {

template <class Reference>
double nmse_of(std::span<const float> value, std::span<const Reference> reference) {
  if (value.size() != reference.size()) throw std::invalid_argument("nmse: sizes differ");
  double error = 0.0;
  double power = 0.0;
  for (size_t i = 0; i < value.size(); ++i) {
    if (!std::isfinite(value[i])) return std::numeric_limits<double>::infinity();
    const double difference = static_cast<double>(value[i]) - static_cast<double>(reference[i]);
    error += difference * difference;
    power += static_cast<double>(reference[i]) * static_cast<double>(reference[i]);
  }
  return power == 0.0 ? (error == 0.0 ? 0.0 : std::numeric_limits<double>::infinity()) : error / power;
}

}  // namespace

std::optional<std::filesystem::path> fixtures_dir() {
  const char* named = std::getenv("MINFER_FIXTURES");
  const std::filesystem::path path =
      named != nullptr ? std::filesystem::path(named)
                       : std::filesystem::path(source_path("")) / ".." / "shared" / "fixtures";
  if (!std::filesystem::is_directory(path)) return std::nullopt;
  return path;
}

std::optional<std::filesystem::path> trained_model(const std::string& name) {
  const auto variable = [](const char* key) {
    const char* value = std::getenv(key);
    return std::filesystem::path(value != nullptr ? value : "");
  };
  std::filesystem::path folder = variable("MINFER_TEST_MODELS");
  if (folder.empty()) {
    const std::filesystem::path cache = variable("XDG_CACHE_HOME");
    folder = (cache.empty() ? variable("HOME") / ".cache" : cache) / "minfer" / "models";
  }
  const std::filesystem::path path = folder / (name + ".gguf");
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path;
}

double nmse(std::span<const float> value, std::span<const float> reference) {
  return nmse_of(value, reference);
}
double nmse(std::span<const float> value, std::span<const double> reference) {
  return nmse_of(value, reference);
}

GoldenLogits read_logits(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  int32_t header[2] = {0, 0};
  file.read(reinterpret_cast<char*>(header), sizeof header);
  GoldenLogits golden;
  golden.tokens.resize(static_cast<size_t>(header[0]));
  golden.vocab = header[1];
  golden.logits.resize(static_cast<size_t>(header[0]) * static_cast<size_t>(header[1]));
  file.read(reinterpret_cast<char*>(golden.tokens.data()),
            static_cast<std::streamsize>(golden.tokens.size() * 4));
  file.read(reinterpret_cast<char*>(golden.logits.data()),
            static_cast<std::streamsize>(golden.logits.size() * 4));
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return golden;
}

}  // namespace minfer::test
