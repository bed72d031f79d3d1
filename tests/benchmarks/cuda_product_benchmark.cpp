// Products with weights on a GPU, as LinearOps computes them, beside cuBLASLt and a plain read of the weights' bytes: see README.md here.
// One JSON line for each shape, type of weights and number of tokens.

#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>
#include <random>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "kernels/cuda/device/attributes.h"
#include "kernels/cuda/device/devices.h"
#include "kernels/cuda/device/streaming_read.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/launch/capture.h"
#include "kernels/cuda/product/linear.h"
#include "kernels/cuda/product/matmul.h"
#include "kernels/cuda/profiler/peak.h"
#include "kernels/cuda/weights/weight_layout.h"
#include "kernels/cuda/weights/weight_memory.h"
#include "tests/support/bench/product_shapes.h"
#include "tests/support/random_data.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;
using test::ProductShape;
using test::ProductWork;
using test::Spread;

constexpr int kWarmUp = 2;
constexpr int64_t kRandomRows = 512;  ///< of a matrix; later rows repeat them

/// The rates of a plain read of 8 GiB, and of cuBLASLt's fastest products of 8,192 x 8,192 matrices.
struct Ceilings {
  double read_gbps;
  double gflops;      ///< bf16
  double fp8_gflops;  ///< 0: the device has no such tensor cores
};

/// A stream, and the measurements on it.
class Bench {
 public:
  explicit Bench(int32_t num_sms) : num_sms_(num_sms) {}
  cudaStream_t stream() const { return stream_.get(); }
  int32_t num_sms() const { return num_sms_; }
  void wait() const { cuda::check(cudaStreamSynchronize(stream_.get()), "products"); }

  /// Microseconds of a call of each of `calls`, in graphs of `count` calls. The graphs take turns, so that a changing clock
  /// affects all alike.
  std::vector<Spread> measure(std::span<const std::function<void(int64_t)>> calls, int64_t count,
                              int repeats) const {
    std::vector<cuda::GraphExec> graphs;
    for (const std::function<void(int64_t)>& call : calls) {
      graphs.push_back(cuda::replayable(stream(), "capturing products", [&] {
        for (int64_t i = 0; i < count; ++i)
          call(i);
      }));
      cuda::check(cudaGraphUpload(graphs.back().get(), stream()), "products");
    }
    std::vector<std::vector<double>> us(graphs.size());
    for (int turn = 0; turn < kWarmUp + repeats; ++turn) {
      const std::vector<double> turn_us = run_in_turn(graphs, count);
      for (size_t i = 0; turn >= kWarmUp && i < us.size(); ++i)
        us[i].push_back(turn_us[i]);
    }
    std::vector<Spread> spreads;
    for (std::vector<double>& values : us)
      spreads.push_back(test::spread_of(std::move(values)));
    return spreads;
  }

 private:
  std::vector<double> run_in_turn(std::span<const cuda::GraphExec> graphs, int64_t count) const {
    std::vector<cuda::Event> events(graphs.size() + 1);
    for (cuda::Event& event : events)
      event = cuda::make_timing_event();
    cuda::check(cudaEventRecord(events[0].get(), stream()), "products");
    for (size_t i = 0; i < graphs.size(); ++i) {
      cuda::check(cudaGraphLaunch(graphs[i].get(), stream()), "products");
      cuda::check(cudaEventRecord(events[i + 1].get(), stream()), "products");
    }
    wait();
    std::vector<double> us;
    for (size_t i = 0; i < graphs.size(); ++i) {
      float ms = 0.0f;
      cuda::check(cudaEventElapsedTime(&ms, events[i].get(), events[i + 1].get()), "products");
      us.push_back(1e3 * static_cast<double>(ms) / static_cast<double>(count));
    }
    return us;
  }

  int32_t num_sms_;
  cuda::Stream stream_ = cuda::make_stream();
};

/// Random rows of a matrix in a file's form.
std::vector<uint8_t> random_matrix(DType type, int64_t rows, int64_t cols) {
  const int64_t random_rows = std::min(rows, kRandomRows);
  const std::vector<uint8_t> part = test::random_weights(type, random_rows, cols, 1);
  std::vector<uint8_t> all;
  all.reserve(static_cast<size_t>(rows) * row_bytes(type, cols));
  for (int64_t row = 0; row < rows; row += random_rows) {
    const auto bytes = static_cast<std::ptrdiff_t>(static_cast<size_t>(std::min(random_rows, rows - row)) *
                                                   row_bytes(type, cols));
    all.insert(all.end(), part.begin(), part.begin() + bytes);
  }
  return all;
}

/// Copies of a shape's weights, contiguous in device memory; in each copy gate, then up.
class Weights {
 public:
  Weights(const ProductShape& shape, DType type, int64_t cache_bytes, cudaStream_t stream) {
    const std::vector<uint8_t> bytes = random_matrix(test::file_dtype(type), shape.rows, shape.cols);
    const HostTensor matrix = test::random_tensor(type, bytes, 1, shape.rows, shape.cols);
    matrices_ = shape.gate_up ? 2 : 1;
    const auto copy_bytes = matrices_ * static_cast<int64_t>(cuda::device_bytes(matrix));
    copies_ = test::cold_copies(copy_bytes, cache_bytes);
    const std::vector<HostTensor> all(static_cast<size_t>(copies_ * matrices_), matrix);
    memory_.reserve(all);
    for (const HostTensor& tensor : all)
      weights_.push_back(memory_.load(stream, tensor));
    memory_.end_loading(stream);
  }
  int64_t copies() const { return copies_; }
  /// `which`: 0, or 1 for up.
  const Weight& of_call(int64_t call, int64_t which = 0) const {
    return weights_[static_cast<size_t>(call % copies_ * matrices_ + which)];
  }

 private:
  int64_t matrices_ = 1;
  int64_t copies_ = 0;
  cuda::WeightMemory memory_;
  std::vector<Weight> weights_;
};

/// x and out for up to that many tokens; out has room for both products of gate and up.
class Activations {
 public:
  Activations(const ProductShape& shape, int64_t tokens)
      : shape_(shape),
        x_(static_cast<size_t>(tokens * shape.cols) * 2, "x"),
        fp8_(static_cast<size_t>(tokens * shape.cols) * 2, "x in FP8"),
        ones_(static_cast<size_t>(shape.cols) * 4, "weights of a norm"),
        out_(static_cast<size_t>(tokens * shape.rows) * 4, "out") {
    const std::vector<uint8_t> bytes = test::random_weights(DType::bf16, tokens, shape.cols, 2);
    cuda::check(cudaMemcpy(x_.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "x");
    const std::vector<float> ones(static_cast<size_t>(shape.cols), 1.0f);
    cuda::check(cudaMemcpy(ones_.data(), ones.data(), ones_.bytes(), cudaMemcpyHostToDevice), "norm");
    cuda::check(cudaMemset(out_.data(), 0, out_.bytes()), "out");
    cuda::check(cudaDeviceSynchronize(), "activations");
  }
  Tensor x(int64_t tokens) const { return {x_.data(), DType::bf16, tokens, shape_.cols, shape_.cols}; }
  /// x as a norm in front of the product writes it in FP8; write_fp8() has written it.
  Tensor fp8_x(int64_t tokens) const { return {fp8_.data(), DType::fp8, tokens, shape_.cols, shape_.cols}; }
  void write_fp8(cuda::Launch launch, int64_t tokens) const {
    const Weight ones{ones_.data(), DType::f32, 1, 1, shape_.cols};
    cuda::rms_norm(launch, x(tokens), ones, 1e-5f, fp8_x(tokens));
  }
  Tensor fp8_out(int64_t tokens) const { return {out_.data(), DType::fp8, tokens, shape_.rows, shape_.rows}; }
  Tensor out(int64_t tokens) const {
    return {out_.data(), shape_.out_is_f32 ? DType::f32 : DType::bf16, tokens, shape_.rows, shape_.rows};
  }
  Tensor both_products(int64_t tokens) const {
    return {out_.data(), DType::bf16, tokens, 2 * shape_.rows, 2 * shape_.rows};
  }

 private:
  const ProductShape& shape_;
  cuda::DeviceBuffer x_;
  cuda::DeviceBuffer fp8_;
  cuda::DeviceBuffer ones_;
  cuda::DeviceBuffer out_;
};

/// Copies of a shape's weights in cuBLASLt's FP8 form: e4m3 numbers, row-major, without scales.
class PlainFp8 {
 public:
  PlainFp8(const ProductShape& shape, int64_t copies)
      : rows_(shape.rows * (shape.gate_up ? 2 : 1)),
        cols_(shape.cols),
        memory_(static_cast<size_t>(copies * rows_ * cols_), "FP8 weights") {
    std::vector<uint8_t> some(static_cast<size_t>(kRandomRows * cols_));
    std::mt19937 random(3);
    for (uint8_t& code : some)
      code = static_cast<uint8_t>(random() & 0xbfu);  // of either sign, below 2
    for (size_t at = 0; at < memory_.bytes(); at += some.size())
      cuda::check(cudaMemcpy(memory_.as<uint8_t>() + at, some.data(),
                             std::min(some.size(), memory_.bytes() - at), cudaMemcpyHostToDevice),
                  "FP8 weights");
  }
  Weight of_copy(int64_t copy) const {
    return {memory_.as<uint8_t>() + copy * rows_ * cols_, DType::f8_e4m3, 1, rows_, cols_};
  }

 private:
  int64_t rows_, cols_;
  cuda::DeviceBuffer memory_;
};

/// A shape with weights of one type, for some numbers of tokens.
class ShapeBench {
 public:
  ShapeBench(const Bench& bench, const ProductShape& shape, DType type, int64_t most_tokens,
             const CudaDevice& device)
      : bench_(bench),
        shape_(shape),
        type_(type),
        sm_(device.sm),
        weights_(shape, type, device.cache_bytes, bench.stream()),
        activations_(shape, most_tokens),
        sink_(sizeof(uint32_t), "sink"),
        ops_(bench.num_sms(), {.max_tokens = static_cast<int32_t>(most_tokens),
                               .hidden_size = std::max(shape.rows, shape.cols),
                               .ffn_size = shape.rows}) {
    if (type == DType::fp8) plain_fp8_.emplace(shape, weights_.copies());
  }

  Json measure(int64_t tokens, int repeats, const Ceilings& ceilings) {
    const Weight& weight = weights_.of_call(0);
    takes_fp8_ = cuda::takes_fp8({&weight, 1}, tokens, 0, cuda::device_facts(bench_.num_sms()));
    if (takes_fp8_) activations_.write_fp8(cuda::Launch(bench_.stream(), bench_.num_sms()), tokens);
    const ProductWork work = test::work_of(shape_, static_cast<int64_t>(weight.matrix_bytes()), tokens);
    const double gflops = takes_fp8_ ? ceilings.fp8_gflops : ceilings.gflops;
    const double floor_us = std::max(static_cast<double>(work.bytes) / (1e3 * ceilings.read_gbps),
                                     static_cast<double>(work.flops) / (1e3 * gflops));
    const std::string path = path_of(tokens);
    std::vector<std::function<void(int64_t)>> calls;
    calls.emplace_back([&](int64_t call) {
      cuda::Launch launch(bench_.stream(), bench_.num_sms());
      multiply(launch, call, tokens);
    });
    calls.emplace_back([&](int64_t call) {
      cuda::streaming_read(bench_.stream(), weights_.of_call(call).data,
                           static_cast<size_t>(work.weight_bytes) / 16 * 16, bench_.num_sms(),
                           sink_.as<uint32_t>());
    });
    std::vector<cuda::Product> products;
    cuda::FastestMatmul fastest{};
    if (type_ == DType::bf16 || takes_fp8_) {
      for (int64_t copy = 0; copy < weights_.copies(); ++copy)
        products.push_back(product(copy, tokens));
      fastest = cuda::fastest_matmul(matmul_, products);
      calls.emplace_back([&](int64_t call) {
        matmul_.run(bench_.stream(), products[static_cast<size_t>(call) % products.size()], fastest.plan);
      });
    }
    const int64_t count = test::calls_in_a_row(floor_us, weights_.copies());
    const std::vector<Spread> us = bench_.measure(calls, count, repeats);
    Json line{{"shape", shape_.name},
              {"type", name(type_)},
              {"rows", shape_.rows},
              {"cols", shape_.cols},
              {"gate_up", shape_.gate_up},
              {"adds", shape_.adds},
              {"x", takes_fp8_ ? "fp8" : "bf16"},
              {"out", takes_fp8_ && shape_.gate_up ? "fp8"
                      : shape_.out_is_f32          ? "f32"
                                                   : "bf16"},
              {"tokens", tokens},
              {"path", path},
              {"weight_bytes", work.weight_bytes},
              {"bytes", work.bytes},
              {"flops", work.flops},
              {"floor_us", floor_us},
              {"read_gbps", ceilings.read_gbps},
              {"tflops", gflops / 1e3},
              {"copies", weights_.copies()},
              {"calls", count},
              {"repeats", repeats}};
    add(line, "own", us[0]);
    add(line, "read", us[1]);
    line["read_to_own"] = us[1].median / us[0].median;
    if (us.size() < 3) return line;
    add(line, "cublaslt", us[2]);
    line["cublaslt_computes"] = takes_fp8_       ? "the products alone, to bf16, without scales"
                                : shape_.gate_up ? "both products alone, without SwiGLU"
                                                 : "the same";
    line["own_to_cublaslt"] = us[0].median / us[2].median;
    return line;
  }

 private:
  static void add(Json& line, const std::string& what, const Spread& us) {
    line[what + "_us"] = us.median;
    line[what + "_us_lowest"] = us.lowest;
    line[what + "_us_highest"] = us.highest;
  }

  void multiply(cuda::Launch& launch, int64_t call, int64_t tokens) {
    const Tensor x = takes_fp8_ ? activations_.fp8_x(tokens) : activations_.x(tokens);
    const Tensor out = takes_fp8_ && shape_.gate_up ? activations_.fp8_out(tokens) : activations_.out(tokens);
    if (shape_.gate_up) {
      ops_.gate_up_swiglu(
          launch, {.x = x, .gate = weights_.of_call(call, 0), .up = weights_.of_call(call, 1), .out = out});
    } else {
      ops_.linear(launch,
                  {.x = x, .weights = {&weights_.of_call(call), 1}, .out = out, .add_to_out = shape_.adds});
    }
  }

  /// The product for cuBLASLt. Gate and up are contiguous: one matrix with twice the rows.
  cuda::Product product(int64_t copy, int64_t tokens) const {
    if (takes_fp8_) {
      const Weight fp8 = plain_fp8_->of_copy(copy);
      Tensor x = activations_.fp8_x(tokens), out = activations_.both_products(tokens);
      x.dtype = DType::f8_e4m3;
      out.cols = out.stride = fp8.rows;
      return {.weight = fp8, .x = x, .out = out};
    }
    Weight weight = weights_.of_call(copy);
    if (shape_.gate_up) weight.rows *= 2;
    return {.weight = weight,
            .x = activations_.x(tokens),
            .out = shape_.gate_up ? activations_.both_products(tokens) : activations_.out(tokens),
            .add_to_out = shape_.adds};
  }

  /// The paths of a call's launches, from the log: a library's kernels are known the second time.
  std::string path_of(int64_t tokens) {
    cuda::LaunchLog log(sm_, true);
    for (int i = 0; i < 2; ++i) {
      log.clear();
      log.begin_op(0);
      cuda::Launch launch(bench_.stream(), bench_.num_sms(), {}, &log);
      multiply(launch, i, tokens);
    }
    bench_.wait();
    const std::vector<KernelLaunch> known = log.table().from(0);
    std::vector<std::string> paths;
    for (const int32_t index : log.launches()) {
      std::string path = index < 0 ? "library" : known[static_cast<size_t>(index)].path;
      if (std::ranges::find(paths, path) == paths.end()) paths.push_back(std::move(path));
    }
    return fmt::format("{}", fmt::join(paths, " + "));
  }

  const Bench& bench_;
  const ProductShape& shape_;
  DType type_;
  SmLimits sm_;
  Weights weights_;
  Activations activations_;
  std::optional<PlainFp8> plain_fp8_;
  bool takes_fp8_ = false;  ///< with the tokens that are being measured
  cuda::DeviceBuffer sink_;
  cuda::LinearOps ops_;
  cuda::Matmul matmul_;
};

struct Options {
  std::string shapes = "llama-3.1-8b";
  std::vector<std::string> types = {"bf16"};
  std::vector<int64_t> tokens = {};
  int repeats = 15;
};

void run(const Options& options) {
  const std::span<const ProductShape> shapes = test::product_shapes(options.shapes);
  std::vector<int64_t> tokens = options.tokens;
  if (tokens.empty()) {
    const std::span<const int64_t> usual = test::usual_tokens(options.shapes);
    tokens.assign(usual.begin(), usual.end());
  }
  std::vector<DType> types;
  for (const std::string& type_name : options.types) {
    const std::optional<DType> type = type_name == name(DType::fp8) ? DType::fp8 : dtype_from_name(type_name);
    if (!type) fail("type \"{}\" is not known", type_name);
    types.push_back(*type);
  }
  if (!has_usable_gpu()) fail("no usable GPU");
  const CudaDevice device = cuda_devices().front();
  const bool has_fp8 = std::ranges::find(types, DType::fp8) != types.end() && has_fp8_tensor_cores(device);
  const GpuPeak peak = measure_gpu_peak(DType::bf16, has_fp8);
  const Ceilings ceilings{.read_gbps = peak.read_gbps, .gflops = peak.gflops, .fp8_gflops = peak.fp8_gflops};
  const Bench bench(device.multiprocessors);
  for (const DType type : types) {
    for (const ProductShape& shape : shapes) {
      ShapeBench of_shape(bench, shape, type, std::ranges::max(tokens), device);
      for (const int64_t count : tokens) {
        fmt::print("{}\n", of_shape.measure(count, options.repeats, ceilings).dump());
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace
}  // namespace minfer

int main(int argc, char** argv) {
  minfer::Options options;
  CLI::App app("Microseconds of products with weights on the first GPU, a JSON line each");
  app.add_option("--shapes", options.shapes, "llama-3.1-8b: those of a layer; square: one of 8,192 x 8,192")
      ->capture_default_str();
  app.add_option("--types", options.types, "of the weights")->delimiter(',')->capture_default_str();
  app.add_option("--tokens", options.tokens, "numbers of tokens (default: those of the shapes)")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  app.add_option("--repeats", options.repeats, "graphs of calls that are measured of each")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    minfer::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "cuda_product_benchmark: {}\n", error.what());
    return 1;
  }
  return 0;
}
