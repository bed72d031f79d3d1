#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "kernels/cuda/device/check.h"
#include "kernels/dtype.h"

/// Maps a weight's type or a tile's size, known when a kernel is launched, to the kernel that was compiled for them.
namespace minfer::cuda {

template <DType... types>
struct DTypes {};

template <DType... first, DType... second>
constexpr DTypes<first..., second...> joined(DTypes<first...>, DTypes<second...>) {
  return {};
}

/// The types that are kept in tiles (weight_layout.h): those with all kernels, and those for which is_rare() is true.
using CommonTypes =
    DTypes<DType::q4_0, DType::q8_0, DType::q4_k, DType::q5_k, DType::q6_k, DType::mxfp4, DType::fp8>;
using RareTypes = DTypes<DType::q4_1, DType::q5_0, DType::q5_1, DType::q2_k, DType::q3_k, DType::iq4_nl,
                         DType::iq4_xs, DType::lut4>;
/// The types of experts, besides bf16.
using ExpertTypes = decltype(joined(CommonTypes{}, DTypes<DType::lut4>{}));
using TiledTypes = decltype(joined(CommonTypes{}, RareTypes{}));
/// All types of weights on the device.
using PlainTypes = DTypes<DType::f32, DType::f16, DType::bf16>;
using DeviceTypes = decltype(joined(PlainTypes{}, TiledTypes{}));

/// Calls launch(std::integral_constant<DType, type>) if `type` is one of `types`. Else throws Error naming `op`.
template <DType... types, class F>
void for_type(DTypes<types...>, std::string_view op, DType type, F&& launch) {
  const bool known = ((type == types && (launch(std::integral_constant<DType, types>{}), true)) || ...);
  if (known) return;
  std::string expected = "one of";
  ((expected += ' ', expected += name(types)), ...);
  unsupported(op, expected, name(type));
}

template <int... values>
using Values = std::integer_sequence<int, values...>;

/// Calls launch(std::integral_constant<int, value>) if `value` is one of `values`. Else throws Error naming `op`.
template <int... values, class F>
void for_value(Values<values...> /*values*/, std::string_view op, int value, F&& launch) {
  const bool known = ((value == values && (launch(std::integral_constant<int, values>{}), true)) || ...);
  if (known) return;
  std::string expected = "one of";
  ((expected += ' ', expected += std::to_string(values)), ...);
  unsupported(op, expected, std::to_string(value));
}

}  // namespace minfer::cuda
