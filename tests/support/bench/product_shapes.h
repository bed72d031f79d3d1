#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The products that cuda_product_benchmark measures, and their work: everything that needs no GPU.
namespace minfer::test {

/// A product of a model: out [tokens, rows] (+)= x [tokens, cols] W^T, x bf16.
struct ProductShape {
  std::string_view name;
  int64_t rows;
  int64_t cols;
  bool gate_up;     ///< two such matrices, with SwiGLU; out bf16
  bool out_is_f32;  ///< else bf16
  bool adds;        ///< out += instead of out =; f32
};

/// The products of a layer of Llama-3.1-8B ("llama-3.1-8b") as the engine computes them, or one of 8,192 x 8,192 ("square"). Throws Error
/// for another name, and lists the known ones.
std::span<const ProductShape> product_shapes(std::string_view preset);
/// The numbers of tokens to measure if none are given.
std::span<const int64_t> usual_tokens(std::string_view preset);

/// The least work of a product.
struct ProductWork {
  int64_t weight_bytes;
  int64_t bytes;  ///< weights, x and out together, each once; an out that is added to twice
  int64_t flops;
};
/// `matrix_bytes`: bytes of one of the two matrices of gate_up, else of the matrix.
ProductWork work_of(const ProductShape& shape, int64_t matrix_bytes, int64_t tokens);

/// The number of weight copies that calls use in turn: at least two, four times the cache together, so that no call finds its bytes there.
int64_t cold_copies(int64_t weight_bytes, int64_t cache_bytes);
/// The number of calls in a graph: the same for each copy, some milliseconds if each takes `floor_us`; 8 to 64 if the copies allow it.
int64_t calls_in_a_row(double floor_us, int64_t copies);

/// The spread of some measurements.
struct Spread {
  double lowest;
  double median;
  double highest;
};
/// Throws Error if there are no values.
Spread spread_of(std::vector<double> values);

}  // namespace minfer::test
