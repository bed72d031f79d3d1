#include <algorithm>
#include <cstring>

#include "kernels/base/error.h"
#include "kernels/cuda/sampling/sample.h"
#include "kernels/cuda/sampling/sample_packed.h"

// The host's side of SampleOps: turns rows into bytes, and bytes into tokens.
namespace minfer::cuda {
namespace {

void check_row(size_t index, const SamplingRow& row) {
  if (!(row.temperature >= 0.0f))
    fail("sample: row {}: temperature {}, expected >= 0", index, row.temperature);
  if (!(row.repetition_penalty > 0.0f)) {
    fail("sample: row {}: repetition penalty {}, expected > 0", index, row.repetition_penalty);
  }
  if (row.top_logprobs > kMaxTopLogprobs) {
    fail("sample: row {}: {} top logprobs, expected at most {}", index, row.top_logprobs, kMaxTopLogprobs);
  }
}

PackedRow packed_row(const SamplingRow& row, const PlacedRow& placed) {
  PackedRow packed{};
  packed.seed = row.seed;
  packed.position = row.position;
  packed.temperature = row.temperature;
  packed.top_k = row.top_k;
  packed.top_p = row.top_p;
  packed.min_p = row.min_p;
  packed.repetition_penalty = row.repetition_penalty;
  packed.presence_penalty = row.presence_penalty;
  packed.frequency_penalty = row.frequency_penalty;
  packed.pending_row = has_penalties(row) ? row.pending_row : -1;
  packed.top_logprobs = row.top_logprobs;
  packed.slot = placed.slot;
  packed.is_penalised = has_penalties(row) && placed.slot >= 0 ? 1 : 0;
  packed.num_biases = static_cast<int32_t>(row.biases.size());
  for (size_t i = 0; i < std::min(row.biases.size(), size_t{kMaxLooseBiases}); ++i)
    packed.biases[i] = {row.biases[i].token, row.biases[i].bias};
  packed.mask = placed.mask;
  packed.num_new = static_cast<int32_t>(placed.new_tokens.size());
  std::ranges::copy(placed.new_tokens, packed.new_tokens);
  return packed;
}

}  // namespace

size_t SampleOps::packed_bytes(size_t num_rows) {
  return sizeof(PackedHeader) + num_rows * sizeof(PackedRow);
}

SampleMode SampleOps::pack(std::span<const SamplingRow> rows, std::span<const PlacedRow> placed,
                           std::byte* out) {
  SampleMode mode;
  const PackedHeader header{static_cast<int32_t>(rows.size()), 0};
  std::memcpy(out, &header, sizeof header);
  out += sizeof header;
  for (size_t i = 0; i < rows.size(); ++i) {
    const SamplingRow& row = rows[i];
    check_row(i, row);
    const PackedRow packed = packed_row(row, placed[i]);
    std::memcpy(out, &packed, sizeof packed);
    out += sizeof packed;
    mode.greedy_only &=
        row.temperature == 0.0f && row.allowed.empty() && row.biases.empty() && !has_penalties(row);
    mode.logprobs |= row.top_logprobs >= 0;
  }
  return mode;
}

size_t SampleOps::result_bytes(int32_t num_rows) {
  return static_cast<size_t>(num_rows) * sizeof(RowResult);
}

void SampleOps::unpack(const std::byte* results, std::span<SampledToken> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    RowResult result;
    std::memcpy(&result, results + i * sizeof result, sizeof result);
    out[i].token = result.token;
    out[i].logprob = result.logprob;
    out[i].top.clear();
    for (int32_t k = 0; k < result.num_top; ++k)
      out[i].top.push_back({result.top[k].token, result.top[k].logprob});
  }
}

}  // namespace minfer::cuda
