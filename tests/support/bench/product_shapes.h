#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// What cuda_product_benchmark measures, and how much of it: all that needs no GPU.
namespace minfer::test {

/// A product of a model: out [tokens, rows] (+)= x [tokens, cols] W^T, x bf16.
struct ProductShape {
  std::string_view name;
  int64_t rows;
  int64_t cols;
  bool gate_up;     ///< of two such matrices, with SwiGLU; out bf16
  bool out_is_f32;  ///< else bf16
  bool adds;        ///< out += instead of out =; f32
};

/// The products of a layer of Llama-3.1-8B ("llama-3.1-8b") as the engine computes them, or one of 8,192 x 8,192 ("square"). Throws Error
/// naming the known ones.
std::span<const ProductShape> product_shapes(std::string_view preset);
/// Tokens that are measured if none are asked for.
std::span<const int64_t> usual_tokens(std::string_view preset);

/// What a product has to do at the least.
struct ProductWork {
  int64_t weight_bytes;
  int64_t bytes;  ///< of weights, x and out together, each once; of an out that is added to, twice
  int64_t flops;
};
/// `matrix_bytes`: of one of the two matrices of gate_up, else of the matrix.
ProductWork work_of(const ProductShape& shape, int64_t matrix_bytes, int64_t tokens);

/// Copies of weights that calls use in turn: two or more, of four times a cache together, so that none of a call's bytes are in it.
int64_t cold_copies(int64_t weight_bytes, int64_t cache_bytes);
/// Calls of a graph: every copy as often as the others, some milliseconds if each takes `floor_us`, between 8 and 64 if copies allow.
int64_t calls_in_a_row(double floor_us, int64_t copies);

/// Of some measurements.
struct Spread {
  double lowest;
  double median;
  double highest;
};
/// Throws Error without values.
Spread spread_of(std::vector<double> values);

}  // namespace minfer::test
