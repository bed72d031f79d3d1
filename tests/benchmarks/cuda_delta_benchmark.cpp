// The ops of gated delta nets on a GPU, beside the device's read speed: see README.md here. A JSON line for each op and batch.

#include <algorithm>
#include <cstdio>
#include <functional>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "kernels/cuda/delta/delta_ops.h"
#include "kernels/cuda/device/devices.h"
#include "kernels/cuda/launch/capture.h"
#include "kernels/cuda/profiler/peak.h"
#include "kernels/work.h"
#include "tests/support/bench/product_shapes.h"
#include "tests/support/cuda/cuda_paged_batch.h"
#include "tests/support/random_data.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;
using test::CudaArray;

constexpr int kWarmUp = 3;
/// Bytes of states that calls use in turn: more than any cache holds.
constexpr int64_t kColdBytes = int64_t{512} << 20;
constexpr int64_t kRandomFloats = int64_t{1} << 20;

struct Batch {
  int32_t sequences;
  int32_t tokens;  ///< of each sequence
};

Tensor f32_tensor(const cuda::DeviceBuffer& memory, int64_t rows, int64_t cols) {
  return {.data = memory.data(), .dtype = DType::f32, .rows = rows, .cols = cols, .stride = cols};
}

cuda::DeviceBuffer random_buffer(int64_t floats) {
  cuda::DeviceBuffer buffer(static_cast<size_t>(floats) * sizeof(float), "operands");
  const std::vector<float> values = test::normal_values(std::min(floats, kRandomFloats), 1, 0.1f);
  for (int64_t first = 0; first < floats; first += std::ssize(values)) {
    cuda::check(cudaMemcpy(buffer.as<float>() + first, values.data(),
                           static_cast<size_t>(std::min(std::ssize(values), floats - first)) * sizeof(float),
                           cudaMemcpyHostToDevice),
                "operands");
  }
  return buffer;
}

/// A layer's ops for one batch, with several copies of the states.
class DeltaBench {
 public:
  DeltaBench(const DeltaNetShape& shape, const Batch& batch, int32_t num_sms)
      : shape_(shape),
        num_sms_(num_sms),
        rows_(int64_t{batch.sequences} * batch.tokens),
        copies_(std::max<int64_t>(2, (kColdBytes + slot_floats() * 4 * batch.sequences - 1) /
                                         (slot_floats() * 4 * batch.sequences))),
        slots_(slots_of(batch.sequences)),
        paged_(std::vector<test::CudaSequence>(static_cast<size_t>(batch.sequences),
                                               {2 * batch.tokens, batch.tokens}),
               batch.tokens == 1 ? batch.sequences : 0, 16, 1),
        states_(random_buffer(copies_ * batch.sequences * slot_floats())),
        x_(random_buffer(rows_ * shape.channels())),
        gates_(random_buffer(rows_ * 2 * shape.value_heads)),
        alphas_(random_buffer(rows_ * shape.alphas())),
        qkv_(random_buffer(rows_ * shape.channels())),
        z_(random_buffer(rows_ * shape.value_columns())),
        values_(random_buffer(rows_ * shape.value_columns())),
        out_(static_cast<size_t>(rows_ * shape.value_columns()) * 2, "operands"),
        weight_(random_buffer(int64_t{shape.conv_size} * shape.channels())),
        vector_(test::normal_values(std::max(shape.alphas(), shape.value_size), 3)),
        decay_(std::vector<float>(static_cast<size_t>(shape.value_heads), -0.05f)),
        sequences_(batch.sequences) {}

  int64_t copies() const { return copies_; }

  void conv(cuda::Launch launch, int64_t call) const {
    cuda::delta_conv(launch, batch(),
                     {.x = f32_tensor(x_, rows_, shape_.channels()),
                      .shape = shape_,
                      .weight = {.data = weight_.data(),
                                 .dtype = DType::f32,
                                 .rows = shape_.conv_size,
                                 .cols = shape_.channels()},
                      .state = state(call),
                      .out = f32_tensor(qkv_, rows_, shape_.channels())});
  }
  void rule(cuda::Launch launch, int64_t call) const {
    cuda::delta_rule(launch, batch(),
                     {.qkv = f32_tensor(qkv_, rows_, shape_.channels()),
                      .gates = f32_tensor(gates_, rows_, (shape_.decays_rows ? 1 : 2) * shape_.value_heads),
                      .shape = shape_,
                      .dt_bias = vector(vector_, shape_.alphas()),
                      .decay = vector(decay_, shape_.value_heads),
                      .state = state(call),
                      .out = f32_tensor(values_, rows_, shape_.value_columns()),
                      .alphas = f32_tensor(alphas_, rows_, shape_.alphas())});
  }
  void gate(cuda::Launch launch) const {
    cuda::head_gate(launch, {.x = f32_tensor(values_, rows_, shape_.value_columns()),
                             .gate = f32_tensor(z_, rows_, shape_.value_columns()),
                             .heads = shape_.value_heads,
                             .gate_stride = shape_.value_size,
                             .function = HeadGateArgs::Function::silu,
                             .norm = vector(vector_, shape_.value_size),
                             .norm_eps = 1e-6f,
                             .out = {.data = out_.data(),
                                     .dtype = DType::bf16,
                                     .rows = rows_,
                                     .cols = shape_.value_columns(),
                                     .stride = shape_.value_columns()}});
  }

 private:
  int64_t slot_floats() const { return shape_.delta_state() + shape_.conv_state(); }
  static std::vector<int32_t> slots_of(int32_t count) {
    std::vector<int32_t> slots(static_cast<size_t>(count));
    for (int32_t i = 0; i < count; ++i)
      slots[static_cast<size_t>(i)] = count - 1 - i;
    return slots;
  }
  static Weight vector(const CudaArray<float>& of, int32_t size) {
    return {.data = of.data(), .dtype = DType::f32, .rows = 1, .cols = size};
  }
  ForwardBatch batch() const {
    ForwardBatch batch = paged_.batch();
    batch.state_slots = slots_.data();
    return batch;
  }
  RecurrentLayer state(int64_t call) const {
    float* const first = states_.as<float>() + call % copies_ * sequences_ * slot_floats();
    return {.conv = first + sequences_ * shape_.delta_state(), .delta = first, .num_slots = sequences_};
  }

  DeltaNetShape shape_;
  int32_t num_sms_;
  int64_t rows_;
  int64_t copies_;
  CudaArray<int32_t> slots_;
  test::CudaPagedBatch paged_;
  cuda::DeviceBuffer states_, x_, gates_, alphas_, qkv_, z_, values_, out_, weight_;
  CudaArray<float> vector_, decay_;
  int32_t sequences_;
};

/// Microseconds of a call, in graphs of `count`.
test::Spread measure(cudaStream_t stream, int64_t count, int repeats,
                     const std::function<void(int64_t)>& call) {
  const cuda::GraphExec graph = cuda::replayable(stream, "capturing ops", [&] {
    for (int64_t i = 0; i < count; ++i)
      call(i);
  });
  const cuda::Event begin = cuda::make_timing_event(), end = cuda::make_timing_event();
  std::vector<double> us;
  for (int turn = 0; turn < kWarmUp + repeats; ++turn) {
    cuda::check(cudaEventRecord(begin.get(), stream), "ops");
    cuda::check(cudaGraphLaunch(graph.get(), stream), "ops");
    cuda::check(cudaEventRecord(end.get(), stream), "ops");
    cuda::check(cudaStreamSynchronize(stream), "ops");
    float ms = 0.0f;
    cuda::check(cudaEventElapsedTime(&ms, begin.get(), end.get()), "ops");
    if (turn >= kWarmUp) us.push_back(1e3 * static_cast<double>(ms) / static_cast<double>(count));
  }
  return test::spread_of(std::move(us));
}

struct Options {
  std::vector<int32_t> sequences = {1, 4, 16, 64, 128, 256};
  std::vector<int32_t> tokens = {16, 64, 256, 1024, 4096};
  int32_t value_heads = 32;
  bool decays_rows = false;
  int repeats = 15;
};

void run(const Options& options) {
  if (!has_usable_gpu()) fail("no usable GPU");
  const CudaDevice device = cuda_devices().front();
  const GpuPeak peak = measure_gpu_peak(DType::bf16, false);
  const DeltaNetShape shape{
      .key_heads = std::max(1, options.decays_rows ? options.value_heads : options.value_heads / 2),
      .value_heads = options.value_heads,
      .key_size = 128,
      .value_size = 128,
      .conv_size = 4,
      .decays_rows = options.decays_rows};
  std::vector<Batch> batches;
  for (const int32_t sequences : options.sequences)
    batches.push_back({sequences, 1});
  for (const int32_t tokens : options.tokens) {
    batches.push_back({1, tokens});
    batches.push_back({4, tokens});
  }
  const cuda::Stream stream = cuda::make_stream();
  for (const Batch& batch : batches) {
    const DeltaBench bench(shape, batch, device.multiprocessors);
    const auto launch = [&] { return cuda::Launch(stream.get(), device.multiprocessors); };
    BatchShape step;
    for (int32_t i = 0; i < batch.sequences; ++i)
      step.add_sequence(batch.tokens == 1, 2 * batch.tokens, batch.tokens, 1);
    const auto print = [&](const char* op, OpKind kind, const std::function<void(int64_t)>& call) {
      OpInfo info{.name = op,
                  .kind = kind,
                  .in_features = shape.value_columns(),
                  .out_features = shape.value_columns(),
                  .delta_net = shape,
                  .in_element_bytes = 4,
                  .out_element_bytes = kind == OpKind::head_gate ? 2 : 4};
      const KernelWork work = op_work(info, step);
      const int64_t count = std::clamp<int64_t>(bench.copies(), 8, 64);
      const test::Spread us = measure(stream.get(), count, options.repeats, call);
      const double gbps = static_cast<double>(work.bytes()) / us.median / 1e3;
      const Json line{{"op", op},
                      {"value_heads", shape.value_heads},
                      {"decays_rows", shape.decays_rows},
                      {"sequences", batch.sequences},
                      {"tokens_each", batch.tokens},
                      {"us", us.median},
                      {"us_lowest", us.lowest},
                      {"us_highest", us.highest},
                      {"bytes", work.bytes()},
                      {"gbps", gbps},
                      {"of_read_speed", gbps / peak.read_gbps},
                      {"gflops", static_cast<double>(work.flops) / us.median / 1e3},
                      {"calls", count}};
      fmt::print("{}\n", line.dump());
      std::fflush(stdout);
    };
    print("delta_conv", OpKind::delta_conv, [&](int64_t call) { bench.conv(launch(), call); });
    print("delta_rule", OpKind::delta_rule, [&](int64_t call) { bench.rule(launch(), call); });
    print("head_gate", OpKind::head_gate, [&](int64_t) { bench.gate(launch()); });
  }
}

}  // namespace
}  // namespace minfer

int main(int argc, char** argv) {
  minfer::Options options;
  CLI::App app("Microseconds of the ops of gated delta nets on the first GPU, a JSON line each");
  app.add_option("--sequences", options.sequences, "that decode together")->delimiter(',');
  app.add_option("--tokens", options.tokens, "of prompts, one and four at a time")->delimiter(',');
  app.add_option("--value-heads", options.value_heads, "of 128; half as many of keys")->capture_default_str();
  app.add_flag("--rows", options.decays_rows,
               "states with a decay for each row, as many heads of keys as of values");
  app.add_option("--repeats", options.repeats, "graphs of calls that are measured of each")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    minfer::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "cuda_delta_benchmark: {}\n", error.what());
    return 1;
  }
  return 0;
}
