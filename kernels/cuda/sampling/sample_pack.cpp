#include <cstring>
#include <limits>

#include "kernels/cuda/sampling/sample.h"
#include "kernels/cuda/sampling/sample_packed.h"
#include "kernels/error.h"

// The host's side of SampleOps: rows become bytes, bytes become tokens.
namespace minfer::cuda {
namespace {

std::span<const TokenCount> needed_counts(const SamplingRow& row) {
  return has_penalties(row) ? row.counts : std::span<const TokenCount>();
}

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

PackedRow packed_row(const SamplingRow& row) {
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
  packed.num_biases = static_cast<int32_t>(row.biases.size());
  packed.num_counts = static_cast<int32_t>(needed_counts(row).size());
  return packed;
}

/// Appends values to packed bytes.
class Writer {
 public:
  explicit Writer(std::byte* out) : begin_(out), at_(out) {}
  template <class T>
  void put(const T& value) {
    std::memcpy(at_, &value, sizeof value);
    at_ += sizeof value;
  }
  void skip(size_t bytes) { at_ += bytes; }
  uint32_t offset() const { return static_cast<uint32_t>(at_ - begin_); }

 private:
  std::byte* begin_;
  std::byte* at_;
};

}  // namespace

size_t SampleOps::packed_bytes(std::span<const SamplingRow> rows) {
  size_t bytes = sizeof(PackedHeader) + rows.size() * sizeof(PackedRow);
  for (const SamplingRow& row : rows)
    bytes += row.biases.size() * sizeof(PackedBias) + needed_counts(row).size() * sizeof(PackedCount);
  if (bytes > std::numeric_limits<uint32_t>::max()) fail("sample: {} bytes of biases and counts", bytes);
  return bytes;
}

SampleMode SampleOps::pack(std::span<const SamplingRow> rows, std::byte* out) {
  SampleMode mode;
  Writer header(out);
  header.put(PackedHeader{static_cast<int32_t>(rows.size()), 0});
  Writer entries(out);
  entries.skip(sizeof(PackedHeader) + rows.size() * sizeof(PackedRow));
  for (size_t i = 0; i < rows.size(); ++i) {
    const SamplingRow& row = rows[i];
    check_row(i, row);
    PackedRow packed = packed_row(row);
    packed.biases_offset = entries.offset();
    for (const LogitBias& bias : row.biases)
      entries.put(PackedBias{bias.token, bias.bias});
    packed.counts_offset = entries.offset();
    for (const TokenCount& seen : needed_counts(row))
      entries.put(PackedCount{seen.token, 2 * seen.output_count + (seen.in_prompt ? 1 : 0)});
    header.put(packed);
    mode.greedy_only &= row.temperature == 0.0f && row.biases.empty() && !has_penalties(row);
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
    if (result.token < 0) {
      fail("sample: row {}: every logit is NaN or -inf, no token can be drawn", i);
    }
    out[i].token = result.token;
    out[i].logprob = result.logprob;
    out[i].top.clear();
    for (int32_t k = 0; k < result.num_top; ++k)
      out[i].top.push_back({result.top[k].token, result.top[k].logprob});
  }
}

}  // namespace minfer::cuda
