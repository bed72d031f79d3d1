#include "models/decoder/weights/quantise.h"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/ranges.h>

#include "kernels/error.h"
#include "models/gguf/printable.h"

namespace minfer {
namespace {

constexpr std::array<std::string_view, 16> kMatrices{
    "attn_q_a.weight",      "attn_q_b.weight", "attn_kv_a_mqa.weight", "attn_q.weight",
    "attn_k.weight",        "attn_v.weight",   "attn_output.weight",   "ffn_gate.weight",
    "ffn_up.weight",        "ffn_down.weight", "ffn_gate_exps.weight", "ffn_up_exps.weight",
    "ffn_down_exps.weight", "attn_qkv.weight", "attn_gate.weight",     "ssm_out.weight"};

/// Of a layer: "blk.3.attn_q.weight".
bool is_matrix_of_layer(std::string_view tensor) {
  if (!tensor.starts_with("blk.")) return false;
  const size_t part = tensor.find('.', 4);
  return part != std::string_view::npos && std::ranges::count(kMatrices, tensor.substr(part + 1)) > 0;
}

bool is_plain(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

}  // namespace

HostTensor to_load(HostTensor tensor, std::optional<DType> type, std::string_view model) {
  if (!type || !is_plain(tensor.dtype) || !is_matrix_of_layer(tensor.name)) return tensor;
  if (tensor.cols % kQuantisedColumns != 0) {
    fail<FileError>(
        "{}: tensor {}: rows of {} elements on a rank, expected a multiple of {} for {} (--quantization)",
        model, printable(tensor.name), tensor.cols, kQuantisedColumns, name(*type));
  }
  tensor.quantise_to = type;
  return tensor;
}

std::vector<HostTensor> tensors_to_load(std::span<const HostTensor> tensors, std::optional<DType> type,
                                        std::string_view model) {
  std::vector<HostTensor> all;
  std::set<std::string_view> found;
  bool any = false;
  for (const HostTensor& tensor : tensors) {
    all.push_back(to_load(tensor, type, model));
    any = any || all.back().quantise_to.has_value();
    if (is_matrix_of_layer(tensor.name)) found.insert(name(tensor.dtype));
  }
  if (type && !any) {
    fail(
        "quantization: {}: the matrices of its layers are {}, expected some of f32, f16 or bf16 to become {}",
        model, found.empty() ? "missing" : fmt::format("{}", fmt::join(found, ", ")), name(*type));
  }
  return all;
}

}  // namespace minfer
