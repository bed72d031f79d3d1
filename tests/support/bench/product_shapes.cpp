#include "tests/support/bench/product_shapes.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/base/error.h"

namespace minfer::test {
namespace {

constexpr std::array<ProductShape, 4> kLlama8b{{
    {.name = "qkv", .rows = 6144, .cols = 4096, .gate_up = false, .out_is_f32 = true, .adds = false},
    {.name = "output", .rows = 4096, .cols = 4096, .gate_up = false, .out_is_f32 = true, .adds = true},
    {.name = "gate_up", .rows = 14336, .cols = 4096, .gate_up = true, .out_is_f32 = false, .adds = false},
    {.name = "down", .rows = 4096, .cols = 14336, .gate_up = false, .out_is_f32 = true, .adds = true},
}};
constexpr std::array<ProductShape, 1> kSquare{
    {{.name = "square", .rows = 8192, .cols = 8192, .gate_up = false, .out_is_f32 = false, .adds = false}}};
constexpr std::array<int64_t, 11> kTokensOfSteps{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048};
constexpr std::array<int64_t, 1> kTokensOfSquare{8192};

struct Preset {
  std::string_view name;
  std::span<const ProductShape> shapes;
  std::span<const int64_t> tokens;
};
constexpr std::array<Preset, 2> kPresets{
    {{"llama-3.1-8b", kLlama8b, kTokensOfSteps}, {"square", kSquare, kTokensOfSquare}}};

const Preset& find_preset(std::string_view name) {
  const auto found = std::ranges::find(kPresets, name, &Preset::name);
  if (found != kPresets.end()) return *found;
  fail("shapes \"{}\" are not known; known ones: {}, {}", name, kPresets[0].name, kPresets[1].name);
}

}  // namespace

std::span<const ProductShape> product_shapes(std::string_view preset) {
  return find_preset(preset).shapes;
}

std::span<const int64_t> usual_tokens(std::string_view preset) {
  return find_preset(preset).tokens;
}

ProductWork work_of(const ProductShape& shape, int64_t matrix_bytes, int64_t tokens) {
  const int64_t matrices = shape.gate_up ? 2 : 1;
  const int64_t weight_bytes = matrices * matrix_bytes;
  const int64_t x_bytes = tokens * shape.cols * 2;
  const int64_t out_bytes = tokens * shape.rows * (shape.out_is_f32 ? 4 : 2) * (shape.adds ? 2 : 1);
  return {.weight_bytes = weight_bytes,
          .bytes = weight_bytes + x_bytes + out_bytes,
          .flops = 2 * matrices * tokens * shape.rows * shape.cols};
}

int64_t cold_copies(int64_t weight_bytes, int64_t cache_bytes) {
  constexpr int64_t kCaches = 4;
  return std::max<int64_t>(2, (kCaches * cache_bytes + weight_bytes - 1) / weight_bytes);
}

int64_t calls_in_a_row(double floor_us, int64_t copies) {
  constexpr double kGraphUs = 3000.0;
  const double wanted = std::clamp(kGraphUs / floor_us, 8.0, 64.0);
  const auto rounds = static_cast<int64_t>(std::ceil(wanted / static_cast<double>(copies)));
  return rounds * copies;
}

Spread spread_of(std::vector<double> values) {
  if (values.empty()) fail("spread: no values");
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return {.lowest = values.front(),
          .median = values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2.0,
          .highest = values.back()};
}

}  // namespace minfer::test
