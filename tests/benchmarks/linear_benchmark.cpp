// Speed of the CPU weight products on the layers of llama-272m (24 layers, hidden 1,024, feed-forward 2,816,
// 16 heads and 4 KV heads of 64): every iteration passes `tokens` tokens through one op, or all four, of each
// of the 24 layers, so that the weights come from memory as in a real step. Arguments: type (name in the
// label), tokens, threads.
//
//   build/release/linear_benchmark --benchmark_filter='peak|run/all/type:2/'

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "kernels/cpu/lanes/peak.h"
#include "kernels/cpu/product/linear.h"

namespace minfer {
namespace {

constexpr int64_t kLayers = 24;
constexpr int64_t kHidden = 1024;
constexpr int64_t kFeedForward = 2816;
constexpr int64_t kQkvRows = (16 + 2 * 4) * 64;

/// A weight of one shape for every layer. The bits are random, but no number is denormal or infinite.
class LayerWeights {
 public:
  LayerWeights(DType dtype, int64_t rows, int64_t cols) : dtype_(dtype), rows_(rows), cols_(cols) {
    const size_t words = matrix_bytes() / sizeof(uint64_t);
    bits_.resize(words * kLayers);
    std::mt19937_64 random(7);
    for (size_t i = 0; i < words; ++i)
      bits_[i] = (random() & 0x1f1f1f1f1f1f1f1f) | 0x2020202020202020;
    for (int64_t layer = 1; layer < kLayers; ++layer)
      std::copy_n(bits_.begin(), words, bits_.begin() + words * layer);
  }
  size_t matrix_bytes() const { return row_bytes(dtype_, cols_) * static_cast<size_t>(rows_); }
  Weight at(int64_t layer) const {
    return {bits_.data() + matrix_bytes() / sizeof(uint64_t) * layer, dtype_, 1, rows_, cols_};
  }

 private:
  DType dtype_;
  int64_t rows_;
  int64_t cols_;
  std::vector<uint64_t> bits_;
};

enum class Op { all, qkv, attention_out, gate_up, down };

/// The linear ops of all layers with their activations.
class Model {
 public:
  Model(DType dtype, int64_t tokens, int32_t threads)
      : tokens_(tokens),
        pool_(threads),
        qkv_(dtype, kQkvRows, kHidden),
        attention_out_(dtype, kHidden, kHidden),
        gate_(dtype, kFeedForward, kHidden),
        up_(dtype, kFeedForward, kHidden),
        down_(dtype, kHidden, kFeedForward),
        hidden_(tokens * kHidden, 0.01f),
        wide_(tokens * kFeedForward, 0.01f),
        out_(tokens * kFeedForward) {}

  void run(Op op) {
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      if (op == Op::all || op == Op::qkv) linear(hidden_, qkv_.at(layer));
      if (op == Op::all || op == Op::attention_out) linear(hidden_, attention_out_.at(layer));
      if (op == Op::all || op == Op::gate_up) {
        cpu::gate_up_swiglu(
            {tensor(hidden_, kHidden), gate_.at(layer), up_.at(layer), tensor(out_, kFeedForward)},
            context());
      }
      if (op == Op::all || op == Op::down) linear(wide_, down_.at(layer));
    }
  }

  /// Bytes of weights that run() reads.
  size_t bytes(Op op) const {
    size_t bytes = 0;
    if (op == Op::all || op == Op::qkv) bytes += qkv_.matrix_bytes();
    if (op == Op::all || op == Op::attention_out) bytes += attention_out_.matrix_bytes();
    if (op == Op::all || op == Op::gate_up) bytes += 2 * gate_.matrix_bytes();
    if (op == Op::all || op == Op::down) bytes += down_.matrix_bytes();
    return kLayers * bytes;
  }

 private:
  cpu::OpContext context() {
    const cpu::Isa isa = cpu::selected_isa();
    return {&pool_, isa, &cpu::lane_kernels(isa), &workspace_};
  }
  Tensor tensor(std::vector<float>& values, int64_t cols) const {
    return {values.data(), DType::f32, tokens_, cols, cols};
  }
  void linear(std::vector<float>& x, const Weight& weight) {
    cpu::linear({.x = tensor(x, weight.cols), .weights = {&weight, 1}, .out = tensor(out_, weight.rows)},
                context());
  }

  int64_t tokens_;
  ThreadPool pool_;
  LayerWeights qkv_, attention_out_, gate_, up_, down_;
  std::vector<float> hidden_, wide_, out_;
  cpu::Workspace workspace_;
};

void run(benchmark::State& state, Op op) {
  const DType dtype = static_cast<DType>(state.range(0));
  const int64_t tokens = state.range(1);
  Model model(dtype, tokens, static_cast<int32_t>(state.range(2)));
  for (auto _ : state)
    model.run(op);
  const double passes = static_cast<double>(state.iterations());
  const double bytes = static_cast<double>(model.bytes(op));
  const double weights = bytes * traits(dtype).block_elements / traits(dtype).block_bytes;
  const auto rate = [](double amount) { return benchmark::Counter(amount, benchmark::Counter::kIsRate); };
  state.SetLabel(std::string(name(dtype)));
  state.counters["GB/s"] = rate(bytes * passes * 1e-9);
  state.counters["GFLOP/s"] = rate(2e-9 * weights * static_cast<double>(tokens) * passes);
  state.counters["tokens/s"] = rate(static_cast<double>(tokens) * passes);
}

/// The ceilings: the rates at which `threads` threads read from memory and multiply-add in registers.
void peak_read(benchmark::State& state) {
  const cpu::PeakLoops loops = cpu::peak_loops(cpu::selected_isa());
  const int32_t threads = static_cast<int32_t>(state.range(0));
  ThreadPool pool(threads);
  constexpr int64_t kBytes = 256 << 20;
  void* data = std::aligned_alloc(64, kBytes * threads);
  std::memset(data, 1, kBytes * threads);
  for (auto _ : state) {
    pool.parallel_for(threads, [&](int64_t piece, int32_t) {
      benchmark::DoNotOptimize(loops.read(static_cast<char*>(data) + kBytes * piece, kBytes));
    });
  }
  std::free(data);
  state.counters["GB/s"] = benchmark::Counter(
      1e-9 * static_cast<double>(kBytes * threads * state.iterations()), benchmark::Counter::kIsRate);
}

void peak_fma(benchmark::State& state) {
  const cpu::PeakLoops loops = cpu::peak_loops(cpu::selected_isa());
  const int32_t threads = static_cast<int32_t>(state.range(0));
  ThreadPool pool(threads);
  constexpr int64_t kRounds = 10'000'000;
  for (auto _ : state) {
    pool.parallel_for(threads, [&](int64_t, int32_t) { benchmark::DoNotOptimize(loops.fma(kRounds)); });
  }
  const double flops = static_cast<double>(kRounds * loops.flops_per_round * threads * state.iterations());
  state.counters["GFLOP/s"] = benchmark::Counter(1e-9 * flops, benchmark::Counter::kIsRate);
}

void types_tokens_threads(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"type", "tokens", "threads"})->UseRealTime()->Unit(benchmark::kMillisecond);
  for (const int64_t threads : {1, 2}) {
    for (const DTypeTraits& type : all_dtypes()) {
      for (const int64_t tokens : {1, 2, 4, 8, 16, 64, 256}) {
        benchmark->Args({static_cast<int64_t>(type.dtype), tokens, threads});
      }
    }
  }
}

BENCHMARK(peak_read)->Arg(1)->Arg(2)->ArgName("threads")->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(peak_fma)->Arg(1)->Arg(2)->ArgName("threads")->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run, all, Op::all)->Apply(types_tokens_threads);
BENCHMARK_CAPTURE(run, qkv, Op::qkv)->Apply(types_tokens_threads);
BENCHMARK_CAPTURE(run, attention_out, Op::attention_out)->Apply(types_tokens_threads);
BENCHMARK_CAPTURE(run, gate_up, Op::gate_up)->Apply(types_tokens_threads);
BENCHMARK_CAPTURE(run, down, Op::down)->Apply(types_tokens_threads);

}  // namespace
}  // namespace minfer

BENCHMARK_MAIN();
