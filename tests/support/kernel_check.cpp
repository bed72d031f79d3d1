#include "tests/support/kernel_check.h"

#include <cmath>
#include <cstring>

#include "kernels/base/error.h"
#include "kernels/half.h"
#include "tests/reference/quantise.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/random_data.h"

namespace minfer::test {
namespace {

using reference::Matrix;

constexpr int32_t kBlockSize = 16;
constexpr int64_t kRows = 304, kCols = 512;
constexpr int32_t kHeads = 8, kKvHeads = 2;

int32_t bytes_of(DType dtype) {
  return static_cast<int32_t>(traits(dtype).block_bytes);
}

void add_weight(KernelSuite& suite, DType dtype, int64_t rows, int64_t cols) {
  suite.weight_bytes.push_back(std::make_unique<std::vector<uint8_t>>(
      random_weights(file_dtype(dtype), rows, cols, 1 + suite.weight_bytes.size())));
  suite.tensors.push_back(random_tensor(dtype, *suite.weight_bytes.back(), 1, rows, cols));
}

KernelSuite norm_suite(DType activation) {
  KernelSuite suite{.name = "rms_norm", .cases = {}, .weight_bytes = {}, .tensors = {}};
  add_weight(suite, DType::f32, 1, kCols);
  const OpInfo info{.name = "rms_norm",
                    .kind = OpKind::rms_norm,
                    .in_features = kCols,
                    .out_features = kCols,
                    .out_element_bytes = bytes_of(activation)};
  for (const int32_t tokens : {1, 70})
    suite.cases.push_back({.info = info, .tokens = tokens, .context = tokens});
  return suite;
}

KernelSuite product_suite(OpKind kind, DType weight, DType activation) {
  const bool is_pair = kind == OpKind::gate_up_swiglu;
  KernelSuite suite{.name = fmt::format("{} {}", minfer::name(kind), minfer::name(weight)),
                    .cases = {},
                    .weight_bytes = {},
                    .tensors = {}};
  for (int i = 0; i < (is_pair ? 2 : 1); ++i)
    add_weight(suite, weight, kRows, kCols);
  const OpInfo info{.name = std::string(minfer::name(kind)),
                    .kind = kind,
                    .in_features = kCols,
                    .out_features = kRows,
                    .add_to_out = !is_pair,
                    .in_element_bytes = bytes_of(activation),
                    .out_element_bytes = is_pair ? bytes_of(activation) : 4};
  for (const int32_t tokens : {1, 2, 8, 9, 17, 65, 130})
    suite.cases.push_back({.info = info, .tokens = tokens, .context = tokens});
  return suite;
}

KernelSuite attention_suite(TokenScope scope, int32_t head_size, DType kv, DType activation,
                            AttentionWindow window, float logit_cap = 0.0f) {
  KernelSuite suite{
      .name = fmt::format("attention {} {} {}", minfer::name(scope), head_size, minfer::name(kv)),
      .cases = {},
      .weight_bytes = {},
      .tensors = {}};
  const OpInfo info{.name = "attention",
                    .kind = OpKind::attention,
                    .scope = scope,
                    .heads = kHeads,
                    .kv_heads = kKvHeads,
                    .head_size = head_size,
                    .window = window,
                    .kv_dtype = kv,
                    .in_element_bytes = bytes_of(activation),
                    .out_element_bytes = bytes_of(activation)};
  const bool is_decode = scope == TokenScope::decode;
  for (const int32_t sequences : {1, 5}) {
    for (const int32_t context : {1, 16, 65, 200}) {
      const int32_t tokens = sequences * (is_decode ? 1 : context);
      suite.cases.push_back({.info = info,
                             .tokens = tokens,
                             .sequences = sequences,
                             .context = context,
                             .logit_cap = logit_cap});
    }
  }
  return suite;
}

/// Latent attention: the values are the first elements of a token's only row.
KernelSuite latent_attention_suite(TokenScope scope, int32_t value_size, int32_t rotary_size, DType kv,
                                   DType activation) {
  KernelSuite suite = attention_suite(scope, value_size + rotary_size, kv, activation, 0);
  suite.name += fmt::format(", values of {} within", value_size);
  for (KernelCase& c : suite.cases) {
    c.info.kv_heads = 1;
    c.info.v_head_size = value_size;
    c.info.v_in_k = true;
  }
  return suite;
}

float element_at(const std::byte* bytes, DType dtype, size_t i) {
  if (dtype == DType::f32) {
    float value = 0.0f;
    std::memcpy(&value, bytes + 4 * i, sizeof value);
    return value;
  }
  uint16_t half = 0;
  std::memcpy(&half, bytes + 2 * i, sizeof half);
  return dtype == DType::f16 ? f16_to_f32(half) : bf16_to_f32(half);
}

std::vector<float> read(Backend& backend, const void* data, DType dtype, int64_t count) {
  std::vector<std::byte> bytes(static_cast<size_t>(count) * traits(dtype).block_bytes);
  backend.copy_to_host(bytes.data(), data, bytes.size());
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = element_at(bytes.data(), dtype, i);
  return values;
}

/// For tensors without gaps.
std::vector<float> read(Backend& backend, const Tensor& tensor) {
  return read(backend, tensor.data, tensor.dtype, tensor.rows * tensor.stride);
}

Matrix read_matrix(Backend& backend, const Tensor& tensor) {
  return reference::to_matrix(read(backend, tensor), tensor.rows, tensor.cols);
}

Matrix weight_of(const KernelSuite& suite, size_t i) {
  return reference::loaded_values(suite.tensors[i]);
}

/// The keys or values of a sequence, [context, kv_heads * size], from rows that are `stride` apart.
Matrix cached(const std::vector<float>& cache, const KernelCase& c, const int32_t* blocks, int64_t head_size,
              int64_t stride) {
  Matrix rows(c.context, c.info.kv_heads * head_size);
  for (int64_t position = 0; position < c.context; ++position) {
    for (int64_t head = 0; head < c.info.kv_heads; ++head) {
      const int64_t row = (blocks[position / kBlockSize] * c.info.kv_heads + head) * kBlockSize;
      for (int64_t d = 0; d < head_size; ++d) {
        rows.at(position, head * head_size + d) =
            cache[static_cast<size_t>((row + position % kBlockSize) * stride + d)];
      }
    }
  }
  return rows;
}

std::vector<double> expected_attention(const KernelOperands& operands, Backend& backend, const KernelCase& c,
                                       const ForwardBatch& batch) {
  const KvLayer kv = operands.kv_layer(c, 0);
  const int64_t elements = int64_t{kv.num_blocks} * kv.kv_heads * kv.block_size * kv.head_size;
  const std::vector<float> k = read(backend, kv.k, kv.dtype, elements);
  const std::vector<float> v = read(backend, kv.v, kv.dtype, elements);
  const Matrix qkv = read_matrix(backend, operands.input(c, 0));
  const int64_t queries = c.tokens / c.sequences, cols = int64_t{c.info.heads} * c.info.head_size;
  std::vector<double> expected;
  for (int64_t s = 0; s < c.sequences; ++s) {
    Matrix q(queries, cols);
    for (int64_t t = 0; t < queries; ++t) {
      for (int64_t i = 0; i < cols; ++i)
        q.at(t, i) = qkv.at(s * queries + t, i);
    }
    const int32_t* blocks = batch.block_table + s * batch.max_blocks;
    const Matrix out = reference::attention(
        q, cached(k, c, blocks, kv.head_size, kv.head_size),
        cached(v, c, blocks, kv.value_size(), kv.value_stride()), c.info.head_size,
        1.0 / std::sqrt(c.info.head_size),
        {.window = c.info.window.keys, .chunked = c.info.window.chunked, .logit_cap = c.logit_cap});
    expected.insert(expected.end(), out.data.begin(), out.data.end());
  }
  return expected;
}

/// The expected output of the op; called before it runs.
std::vector<double> expected_of(const KernelSuite& suite, const KernelOperands& operands, Backend& backend,
                                const KernelCase& c, const ForwardBatch& batch) {
  if (c.info.kind == OpKind::attention) return expected_attention(operands, backend, c, batch);
  const Matrix x = read_matrix(backend, operands.input(c, 0));
  switch (c.info.kind) {
    case OpKind::rms_norm: {
      const Matrix weight = weight_of(suite, 0);
      return reference::rms_norm(x, std::vector<float>(weight.data.begin(), weight.data.end()), c.norm_eps)
          .data;
    }
    case OpKind::gate_up_swiglu:
      return reference::gate_up_swiglu(x, weight_of(suite, 0), weight_of(suite, 1)).data;
    case OpKind::linear: {
      Matrix sum = reference::linear(x, weight_of(suite, 0));
      const Matrix before = read_matrix(backend, operands.output(c, 0));
      for (size_t i = 0; i < sum.data.size(); ++i)
        sum.data[i] += before.data[i];
      return sum.data;
    }
    default:
      fail("no reference for the op {}", c.info.name);
  }
}

}  // namespace

std::vector<KernelSuite> kernel_suites(DType activation) {
  std::vector<KernelSuite> suites;
  suites.push_back(norm_suite(activation));
  for (const DType weight : {DType::f32, DType::f16, DType::bf16, DType::q4_0, DType::q8_0, DType::q4_k,
                             DType::q5_k, DType::q6_k, DType::mxfp4, DType::fp8}) {
    suites.push_back(product_suite(OpKind::linear, weight, activation));
    suites.push_back(product_suite(OpKind::gate_up_swiglu, weight, activation));
  }
  for (const TokenScope scope : {TokenScope::decode, TokenScope::prefill}) {
    for (const int32_t head_size : {64, 96, 128, 256}) {
      for (const DType kv : {DType::f32, DType::f16, DType::bf16})
        suites.push_back(attention_suite(scope, head_size, kv, activation, 0));
      suites.push_back(attention_suite(scope, head_size, DType::bf16, activation, 40));
      suites.push_back(attention_suite(scope, head_size, DType::bf16, activation, {40, true}));
      suites.push_back(attention_suite(scope, head_size, DType::bf16, activation, 40, 0.5f));
    }
    for (const DType kv : {DType::f32, DType::f16, DType::bf16}) {
      suites.push_back(latent_attention_suite(scope, 512, 64, kv, activation));
      suites.push_back(latent_attention_suite(scope, 28, 12, kv, activation));
    }
  }
  return suites;
}

std::vector<double> kernel_errors(const KernelSuite& suite, std::unique_ptr<Backend> owned) {
  KernelOperands operands(suite.tensors, std::move(owned), suite.cases, kBlockSize, 0);
  Backend& backend = operands.backend();
  std::vector<double> errors;
  for (const KernelCase& c : operands.cases()) {
    const ForwardBatch batch = operands.host_batch(c);
    const std::vector<double> expected = expected_of(suite, operands, backend, c, batch);
    enum : OpId { kInputs, kNorm, kRun, kResults };
    const StepArgs step{.batch = batch, .inputs_op = kInputs, .sample_op = kRun, .results_op = kResults};
    backend.launch_step(step, [&](const ForwardBatch& on_device) {
      operands.run_norm(kNorm);
      return operands.run(c, on_device, kRun);
    });
    backend.finish_step({});
    errors.push_back(nmse(read(backend, operands.output(c, 0)), expected));
  }
  return errors;
}

}  // namespace minfer::test
