#include "models/decoder/weights/quantise.h"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/ranges.h>

#include "kernels/base/error.h"
#include "models/gguf/printable.h"

namespace minfer {
namespace {

constexpr std::array<std::string_view, 21> kMatrices{
    "attn_q_a",      "attn_q_b",          "attn_kv_a_mqa",     "attn_q",          "attn_k",        "attn_v",
    "attn_output",   "attn_qkv",          "attn_gate",         "ffn_gate",        "ffn_up",        "ffn_down",
    "ffn_gate_exps", "ffn_up_exps",       "ffn_down_exps",     "ffn_latent_down", "ffn_latent_up", "ssm_in",
    "ssm_out",       "shortconv.in_proj", "shortconv.out_proj"};

/// True for a layer's matrix, e.g. "blk.3.attn_q.weight".
bool is_matrix_of_layer(std::string_view tensor) {
  constexpr std::string_view kWeight = ".weight";
  if (!tensor.starts_with("blk.") || !tensor.ends_with(kWeight)) return false;
  tensor.remove_suffix(kWeight.size());
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
