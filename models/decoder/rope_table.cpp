#include <algorithm>
#include <cmath>
#include <numbers>

#include "models/decoder/config/config.h"

namespace minfer {
namespace {

/// The pair index whose wavelength makes `rotations` turns within the original context.
double yarn_pair_of_rotations(const RopeConfig& rope, int32_t rotary_size, double rotations) {
  const double context = rope.scaling.original_context;
  return rotary_size * std::log(context / (rotations * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(static_cast<double>(rope.base)));
}

/// Share of a pair's frequency that stays unscaled: 1 for the fast pairs, 0 for the slow ones, a ramp between.
double yarn_unscaled_share(const RopeConfig& rope, int32_t rotary_size, int32_t pair) {
  const RopeScaling& scaling = rope.scaling;
  const double first = yarn_pair_of_rotations(rope, rotary_size, scaling.beta_fast);
  const double last = yarn_pair_of_rotations(rope, rotary_size, scaling.beta_slow);
  const double low = std::max(0.0, scaling.rounds ? std::floor(first) : first);
  const double high = std::min(rotary_size - 1.0, scaling.rounds ? std::ceil(last) : last);
  const double ramp = (pair - low) / std::max(0.001, high - low);
  return 1.0 - std::clamp(ramp, 0.0, 1.0);
}

double frequency_of_pair(const RopeConfig& rope, int32_t rotary_size,
                         std::span<const float> frequency_factors, int32_t pair) {
  double frequency = std::pow(static_cast<double>(rope.base), -2.0 * pair / rotary_size);
  if (!frequency_factors.empty())
    frequency /= static_cast<double>(frequency_factors[static_cast<size_t>(pair)]);
  const RopeScaling& scaling = rope.scaling;
  switch (scaling.kind) {
    case RopeScaling::Kind::none:
    case RopeScaling::Kind::long_rope:  // its factors have divided
      return frequency;
    case RopeScaling::Kind::linear:
      return frequency / scaling.factor;
    case RopeScaling::Kind::yarn: {
      const double unscaled = yarn_unscaled_share(rope, rotary_size, pair);
      return frequency * unscaled + frequency / scaling.factor * (1.0 - unscaled);
    }
  }
  return frequency;
}

}  // namespace

float yarn_magnitude(float factor, float attention_factor, float log_multiplier) {
  const double growth = 0.1 * std::log(std::max(1.0, static_cast<double>(factor)));
  return static_cast<float>(attention_factor * (1.0 + growth) / (1.0 + log_multiplier * growth));
}

std::vector<float> make_rope_table(const RopeConfig& rope, int32_t rotary_size,
                                   std::span<const float> frequency_factors, int32_t max_positions) {
  const int32_t pairs = rotary_size / 2;
  const double magnitude = rope.scaling.magnitude;
  std::vector<double> frequencies;
  for (int32_t pair = 0; pair < pairs; ++pair) {
    frequencies.push_back(frequency_of_pair(rope, rotary_size, frequency_factors, pair));
  }
  std::vector<float> table;
  table.reserve(static_cast<size_t>(max_positions) * static_cast<size_t>(pairs) * 2);
  for (int32_t position = 0; position < max_positions; ++position) {
    for (double frequency : frequencies) {
      const double angle = position * frequency;
      table.push_back(static_cast<float>(magnitude * std::cos(angle)));
      table.push_back(static_cast<float>(magnitude * std::sin(angle)));
    }
  }
  return table;
}

}  // namespace minfer
