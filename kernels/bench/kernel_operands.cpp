#include "kernels/bench/kernel_operands.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/half.h"

namespace minfer {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kFillerCols = 4096;
constexpr int64_t kNormCols = 256;
/// The number of random elements; memory is filled with repetitions of them.
constexpr size_t kFillChunk = size_t{1} << 20;

int64_t aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t element_bytes(DType dtype) {
  return traits(dtype).block_bytes;
}

DType plain_type(int32_t bytes_of_element) {
  return bytes_of_element == 4 ? DType::f32 : DType::bf16;
}

/// Columns of the activations that an op reads; 0: it reads none.
int64_t input_cols(const OpInfo& info) {
  switch (info.kind) {
    case OpKind::embed:
      return 0;
    case OpKind::rope_kv_write:
    case OpKind::attention: {
      // f32 queries are rotated in place, so attention reads them from rows that also hold k and v.
      const bool is_q_alone = info.kind == OpKind::attention && (info.in_element_bytes != 4 || info.v_in_k);
      return int64_t{info.heads + (is_q_alone ? 0 : 2 * info.kv_heads)} * info.head_size;
    }
    case OpKind::latent_kv_write:  // the rotated elements of q, then kv
      return int64_t{info.heads} * info.rotary_size + info.head_size;
    default:
      return info.in_features;
  }
}

/// Columns of the activations that an op writes; 0: it writes none.
int64_t output_cols(const OpInfo& info) {
  switch (info.kind) {
    case OpKind::moe_route:
    case OpKind::sample:
      return 0;
    case OpKind::rope_kv_write:
    case OpKind::latent_kv_write:
      return int64_t{info.heads} * info.head_size;
    case OpKind::attention:
      return int64_t{info.heads} * info.value_size();
    case OpKind::gate_up_swiglu:  // room for both products side by side: see products()
      return 2 * info.out_features;
    default:
      return info.out_features;
  }
}

bool is_of_experts(const OpInfo& info) {
  return info.kind == OpKind::moe_gate_up_swiglu || info.kind == OpKind::moe_down;
}

int64_t input_rows(const KernelCase& c) {
  return int64_t{c.tokens} * (c.info.kind == OpKind::moe_down ? c.info.experts_used : 1);
}

int64_t output_rows(const KernelCase& c) {
  return int64_t{c.tokens} * (c.info.kind == OpKind::moe_gate_up_swiglu ? c.info.experts_used : 1);
}

int64_t input_bytes(const KernelCase& c) {
  return aligned(input_rows(c) * input_cols(c.info) * c.info.in_element_bytes);
}

int64_t output_bytes(const KernelCase& c) {
  return aligned(output_rows(c) * output_cols(c.info) * c.info.out_element_bytes);
}

/// Token ids or expert ids that a run reads or writes.
int64_t id_count(const KernelCase& c) {
  if (c.info.kind == OpKind::embed) return c.tokens;
  const bool has_experts = is_of_experts(c.info) || c.info.kind == OpKind::moe_route;
  return has_experts ? int64_t{c.tokens} * c.info.experts_used : 0;
}

std::vector<std::byte> random_elements(DType dtype, size_t count, std::mt19937& random) {
  std::uniform_real_distribution<float> even(-1.0f, 1.0f);
  std::vector<std::byte> bytes(count * static_cast<size_t>(element_bytes(dtype)));
  for (size_t i = 0; i < count; ++i) {
    std::byte* out = bytes.data() + i * static_cast<size_t>(element_bytes(dtype));
    const float value = even(random);
    const uint16_t half = dtype == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
    if (dtype == DType::f8_e4m3) {  // random sign and mantissa; exponents of numbers below 2
      *out = static_cast<std::byte>(random() & 0xb7u);
    } else if (dtype == DType::f32) {
      std::memcpy(out, &value, sizeof value);
    } else {
      std::memcpy(out, &half, sizeof half);
    }
  }
  return bytes;
}

}  // namespace

int64_t cold_bytes(const BackendInfo& info) {
  return std::clamp(3 * info.cache_bytes, int64_t{64} << 20, int64_t{512} << 20);
}

KernelOperands::KernelOperands(std::span<const HostTensor> tensors, std::unique_ptr<Backend> backend,
                               std::vector<KernelCase> cases, int32_t block_size, int64_t cold_bytes)
    : backend_(std::move(backend)),
      cases_(std::move(cases)),
      block_size_(block_size),
      cold_bytes_(cold_bytes) {
  if (cases_.empty()) fail("kernel operands: no cases");
  load_weights(tensors);
  prepare();
  allocate();
}

int64_t KernelOperands::copies(const KernelCase& c) const {
  const int64_t bytes = c.work().bytes();
  return std::clamp((cold_bytes_ + bytes - 1) / bytes, int64_t{1}, kMostCopies);
}

void KernelOperands::load_weights(std::span<const HostTensor> tensors) {
  const OpInfo& info = cases_.front().info;
  const auto set_weights_of_cases = [this](std::vector<Weight> read) {
    if (cases_.front().info.kind == OpKind::embed) read.front().rows = 1;
    for (KernelCase& c : cases_)
      set_weights(c.info, read);
  };
  std::vector<Weight> as_loaded;
  for (const HostTensor& tensor : tensors)
    as_loaded.push_back({tensor.data, tensor.loaded_dtype(), tensor.count, tensor.rows, tensor.cols});
  if (!as_loaded.empty()) set_weights_of_cases(std::move(as_loaded));
  int64_t num_copies = 1;
  // For a table or experts, each run reads other rows or matrices of the one copy.
  if (info.kind != OpKind::embed && !is_of_experts(info)) {
    for (const KernelCase& c : cases_)
      num_copies = std::max(num_copies, copies(c));
  }
  std::vector<HostTensor> all;
  const bool reads_in_place = !backend_->device_memory().has_value();
  for (int64_t copy = 0; copy < num_copies; ++copy) {
    for (HostTensor tensor : tensors) {
      if (reads_in_place && copy > 0) {
        host_weights_.push_back(backend_->allocate(tensor.bytes(), "weights"));
        std::memcpy(host_weights_.back().data(), tensor.data, tensor.bytes());
        tensor.data = host_weights_.back().data();
      }
      all.push_back(std::move(tensor));
    }
  }
  backend_->reserve_weights(all);
  for (size_t i = 0; i < all.size(); ++i) {
    if (i % tensors.size() == 0) weights_.emplace_back();
    weights_.back().push_back(backend_->load(all[i]));
  }
  if (weights_.empty()) return;
  set_weights_of_cases(weights_.front());
}

void KernelOperands::prepare() {
  constexpr int32_t kOtherOps = 8;
  backend_->prepare(
      step_limits(cases_, block_size_, kFillerCols, static_cast<int32_t>(kMostCopies) + kOtherOps));
}

void KernelOperands::allocate() {
  int64_t inputs = 0, outputs = 0, kv = 0, ids = 0, angles = 0;
  for (const KernelCase& c : cases_) {
    const int64_t n = copies(c);
    inputs = std::max(inputs, n * input_bytes(c));
    outputs = std::max(outputs, n * output_bytes(c));
    ids = std::max(ids, n * id_count(c));
    const bool has_kv = c.info.kind == OpKind::rope_kv_write || c.info.kind == OpKind::latent_kv_write ||
                        c.info.kind == OpKind::attention;
    if (has_kv) kv = std::max(kv, n * 2 * half_kv_bytes(c));
    angles = std::max(angles, int64_t{c.context} * c.rotary_size);  // a sine and a cosine for two elements
  }
  const auto make = [&](int64_t bytes, DType content, const char* what) {
    Buffer memory = backend_->allocate(static_cast<size_t>(bytes), what);
    fill(memory, content);
    return memory;
  };
  const OpInfo& info = cases_.front().info;
  inputs_ = make(inputs, plain_type(info.in_element_bytes), "inputs");
  outputs_ = make(outputs, plain_type(info.out_element_bytes), "outputs");
  kv_ = make(kv, info.kv_dtype, "KV cache");
  rope_table_ = make(angles * element_bytes(DType::f32), DType::f32, "rotary table");
  expert_weights_ = make(ids * element_bytes(DType::f32), DType::f32, "expert weights");
  ids_ = backend_->allocate(static_cast<size_t>(ids) * sizeof(int32_t), "ids");
  fill_ids();
  norm_row_ = make(kNormCols * element_bytes(DType::f32), DType::f32, "norm");
  const DType activation = backend_->info().activation_dtype;
  const int64_t rows = cold_bytes_ / element_bytes(activation) / kFillerCols;
  filler_memory_ = make((rows + 1) * kFillerCols * element_bytes(activation), activation, "cache filler");
  filler_output_ = make(rows * element_bytes(DType::f32), DType::f32, "cache filler");
  filler_ = {filler_memory_.data(), activation, 1, rows, kFillerCols};
  filler_x_ = {static_cast<std::byte*>(filler_memory_.data()) + filler_.matrix_bytes(), activation, 1,
               kFillerCols, kFillerCols};
  filler_out_ = {filler_output_.data(), DType::f32, 1, rows, rows};
}

void KernelOperands::fill(const Buffer& memory, DType content) {
  const auto size = static_cast<size_t>(element_bytes(content));
  const std::vector<std::byte> chunk =
      random_elements(content, std::min(kFillChunk, memory.bytes() / size), random_);
  for (size_t at = 0; at < memory.bytes(); at += chunk.size()) {
    backend_->copy_to_device(static_cast<std::byte*>(memory.data()) + at, chunk.data(),
                             std::min(chunk.size(), memory.bytes() - at));
  }
}

/// Draws token ids from the vocabulary, and the experts of a token without repetition.
void KernelOperands::fill_ids() {
  if (ids_.bytes() == 0) return;
  const OpInfo& info = cases_.front().info;
  const bool is_embed = info.kind == OpKind::embed;
  std::vector<int32_t> ids(ids_.bytes() / sizeof(int32_t));
  const size_t group = is_embed ? 1 : static_cast<size_t>(std::max(1, info.experts_used));
  const auto end = is_embed ? static_cast<int32_t>(weights_.front().front().rows) : info.experts;
  std::uniform_int_distribution<int32_t> any(0, std::max(0, end - 1));
  for (size_t first = 0; first < ids.size(); first += group) {
    for (size_t i = first; i < first + group;) {
      ids[i] = any(random_);
      const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(first);
      const auto here = ids.begin() + static_cast<std::ptrdiff_t>(i);
      if (std::find(begin, here, *here) == here) ++i;
    }
  }
  backend_->copy_to_device(ids_.data(), ids.data(), ids_.bytes());
}

int64_t KernelOperands::half_kv_bytes(const KernelCase& c) const {
  const int64_t slots = int64_t{c.sequences} * sequence_blocks(c) * block_size_;
  return aligned(slots * c.info.kv_heads * c.info.head_size * element_bytes(c.info.kv_dtype));
}

KvLayer KernelOperands::kv_layer(const KernelCase& c, int64_t copy) const {
  auto* k = static_cast<std::byte*>(kv_.data()) + copy * 2 * half_kv_bytes(c);
  return {.k = k,
          .v = c.info.v_in_k ? k : k + half_kv_bytes(c),
          .dtype = c.info.kv_dtype,
          .num_blocks = c.sequences * sequence_blocks(c),
          .block_size = block_size_,
          .kv_heads = c.info.kv_heads,
          .head_size = c.info.head_size,
          .v_head_size = c.info.v_head_size,
          .v_in_k = c.info.v_in_k};
}

Tensor KernelOperands::input(const KernelCase& c, int64_t copy) const {
  return {.data = static_cast<std::byte*>(inputs_.data()) + copy * input_bytes(c),
          .dtype = plain_type(c.info.in_element_bytes),
          .rows = input_rows(c),
          .cols = input_cols(c.info),
          .stride = input_cols(c.info)};
}

Tensor KernelOperands::output(const KernelCase& c, int64_t copy) const {
  const int64_t cols = c.info.kind == OpKind::gate_up_swiglu ? c.info.out_features : output_cols(c.info);
  return {.data = static_cast<std::byte*>(outputs_.data()) + copy * output_bytes(c),
          .dtype = plain_type(c.info.out_element_bytes),
          .rows = output_rows(c),
          .cols = cols,
          .stride = cols};
}

int32_t* KernelOperands::ids_of(const KernelCase& c, int64_t copy) const {
  return static_cast<int32_t*>(ids_.data()) + copy * id_count(c);
}

float* KernelOperands::expert_weights_of(const KernelCase& c, int64_t copy) const {
  return static_cast<float*>(expert_weights_.data()) + copy * id_count(c);
}

}  // namespace minfer
