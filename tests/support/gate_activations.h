#pragma once

#include <array>
#include <ostream>

#include "tests/reference/ops.h"
#include "tests/support/random_data.h"

namespace minfer::test {

struct NamedActivation {
  const char* name;
  GateActivation activation;
};
/// Prints a test parameter by its name.
inline void PrintTo(const NamedActivation& kind, std::ostream* out) {
  *out << kind.name;
}
inline constexpr std::array kGateActivations{
    NamedActivation{"silu", GateActivation::silu}, NamedActivation{"gelu_tanh", GateActivation::gelu_tanh},
    NamedActivation{"gelu", GateActivation::gelu}, NamedActivation{"relu", GateActivation::relu},
    NamedActivation{"clamped_swiglu", GateActivation::clamped_swiglu}};

/// Biases for `matrices` matrices of `rows` rows, so large that some gates and ups exceed the limits of the clamped kind.
inline reference::GateUpBiases gate_up_biases(int64_t matrices, int64_t rows) {
  return {.gate = normal_values(matrices * rows, 31, 4.0f), .up = normal_values(matrices * rows, 32, 4.0f)};
}

}  // namespace minfer::test
