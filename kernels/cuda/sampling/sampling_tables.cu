#include <algorithm>
#include <cstring>

#include "kernels/cuda/sampling/sampling_tables.h"

/// counts[token] += kOneOutput for each generated token of a history; sets kInPrompt for the tokens of its prompt.
///
///   tokens  [size] i32 in page-locked memory, read over PCIe: 4 bytes a token
///   counts  [vocabulary] u32
///
/// One thread a token, with atomics: tokens may repeat. Tokens outside the vocabulary are ignored.
namespace minfer::cuda {
namespace {

constexpr int kThreads = 256;
constexpr size_t kAlignment = 16;

__global__ void __launch_bounds__(kThreads)
    count_kernel(const int32_t* tokens, int32_t size, int32_t num_prompt, int32_t vocabulary,
                 uint32_t* counts, Stamp stamp) {
  begin_kernel(stamp);
  allow_next_kernel();
  const auto i = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= size) return;
  const int32_t token = tokens[i];
  if (token < 0 || token >= vocabulary) return;
  if (i < num_prompt) {
    atomicOr(counts + token, kInPrompt);
  } else {
    atomicAdd(counts + token, kOneOutput);
  }
}

int64_t aligned(int64_t elements) {
  constexpr int64_t kElements = 64;
  return (elements + kElements - 1) / kElements * kElements;
}

size_t table_bytes(const StepLimits& limits, int64_t row_bytes) {
  return static_cast<size_t>(std::max(limits.max_sequences, 1)) * static_cast<size_t>(row_bytes);
}

}  // namespace

SamplingTables::SamplingTables(const StepLimits& limits)
    : vocabulary_(limits.vocab_size),
      stride_(aligned(limits.vocab_size)),
      slots_(std::max(limits.max_sequences, 1)),
      counts_(table_bytes(limits, stride_ * int64_t{sizeof(uint32_t)}), "counts of seen tokens"),
      biases_(table_bytes(limits, kMaxRowBiases * int64_t{sizeof(PackedBias)}), "logit biases"),
      mask_words_((limits.vocab_size + 31) / 32),
      max_masks_(std::max(limits.max_sequences, 1)),
      masks_(table_bytes(limits, mask_words_ * int64_t{sizeof(uint32_t)}), "masks of allowed tokens") {
  for (Piece& piece : pieces_)
    piece = {PinnedBuffer(kPieceBytes, "staging of seen tokens"), make_event()};
  for (Piece& piece : staged_masks_)
    piece = {PinnedBuffer(masks_.bytes(), "staging of masks"), make_event()};
}

std::span<const PlacedRow> SamplingTables::bring(Launch launch, std::span<const SamplingRow> rows) {
  slots_.begin_step();
  placed_.clear();
  mask_index_.clear();
  for (const SamplingRow& row : rows) {
    const SamplingSlots::Placement placement = slots_.place(row);
    PlacedRow& placed = placed_.emplace_back(PlacedRow{.slot = placement.slot});
    if (!row.allowed.empty()) placed.mask = place_mask(row);
    if (placement.slot < 0) continue;
    if (placement.brings_biases) bring_biases(launch.stream(), row, placement.slot);
    if (has_penalties(row)) placed.new_tokens = bring_counts(launch, row, placement);
  }
  if (!mask_index_.empty()) bring_masks(launch.stream());
  return placed_;
}

/// Puts the row's mask into the staging memory, unless it is already there, and returns its index.
int32_t SamplingTables::place_mask(const SamplingRow& row) {
  require_equal("sample: words of a mask", mask_words_, std::ssize(row.allowed));
  const auto next = static_cast<int32_t>(mask_index_.size());
  Piece& piece = staged_masks_[staged_mask_];
  if (next == 0) check(cudaEventSynchronize(piece.is_free.get()), "staging of masks");
  const auto [mask, is_new] = mask_index_.try_emplace(row.allowed.data(), next);
  if (!is_new) return mask->second;
  if (next == max_masks_) require_equal("sample: masks of a step at most", max_masks_, next + 1);
  std::memcpy(piece.memory.as<uint32_t>() + next * mask_words_, row.allowed.data(), row.allowed.size_bytes());
  return next;
}

void SamplingTables::bring_masks(cudaStream_t stream) {
  Piece& piece = staged_masks_[staged_mask_];
  const size_t bytes = mask_index_.size() * static_cast<size_t>(mask_words_) * sizeof(uint32_t);
  check(cudaMemcpyAsync(masks_.data(), piece.memory.data(), bytes, cudaMemcpyHostToDevice, stream),
        "copying masks of allowed tokens");
  check(cudaEventRecord(piece.is_free.get(), stream), "copying masks of allowed tokens");
  staged_mask_ = (staged_mask_ + 1) % staged_masks_.size();
}

/// Returns the tokens that the step itself counts.
std::span<const int32_t> SamplingTables::bring_counts(Launch& launch, const SamplingRow& row,
                                                      const SamplingSlots::Placement& placement) {
  uint32_t* counts = counts_.as<uint32_t>() + placement.slot * stride_;
  if (placement.is_new) {
    check(cudaMemsetAsync(counts, 0, static_cast<size_t>(stride_) * sizeof *counts, launch.stream()),
          "clearing counts of seen tokens");
  }
  std::span<const int32_t> tokens = row.history.subspan(static_cast<size_t>(placement.num_counted));
  int32_t num_prompt = std::max(row.num_prompt - placement.num_counted, 0);
  if (num_prompt == 0 && tokens.size() <= size_t{kMaxNewTokens}) return tokens;
  constexpr size_t kPieceTokens = kPieceBytes / sizeof(int32_t);
  while (!tokens.empty()) {
    const std::span<const int32_t> some = tokens.first(std::min(tokens.size(), kPieceTokens));
    const auto size = static_cast<int32_t>(some.size());
    const std::byte* staged = stage(launch.stream(), some.data(), some.size_bytes());
    launch("count_tokens", count_kernel, static_cast<unsigned>((size + kThreads - 1) / kThreads), kThreads, 0,
           reinterpret_cast<const int32_t*>(staged), size, num_prompt, static_cast<int32_t>(vocabulary_),
           counts);
    tokens = tokens.subspan(some.size());
    num_prompt = std::max(num_prompt - size, 0);
  }
  return {};
}

void SamplingTables::bring_biases(cudaStream_t stream, const SamplingRow& row, int32_t slot) {
  static_assert(sizeof(PackedBias) == sizeof(LogitBias));
  if (row.biases.size() > size_t{kMaxRowBiases}) {
    require_equal("sample: biases of a row at most", kMaxRowBiases, std::ssize(row.biases));
  }
  const size_t bytes = row.biases.size_bytes();
  check(cudaMemcpyAsync(biases_.as<PackedBias>() + int64_t{slot} * kMaxRowBiases,
                        stage(stream, row.biases.data(), bytes), bytes, cudaMemcpyHostToDevice, stream),
        "copying logit biases");
}

/// A copy of `data`, at most a piece, that the stream's next work may read. Pieces are filled in turn: when
/// this one is full, waits until the work that reads the other one is done.
std::byte* SamplingTables::stage(cudaStream_t stream, const void* data, size_t bytes) {
  if (used_ + bytes > kPieceBytes) {
    check(cudaEventRecord(pieces_[piece_].is_free.get(), stream), "staging of seen tokens");
    piece_ = (piece_ + 1) % pieces_.size();
    used_ = 0;
    check(cudaEventSynchronize(pieces_[piece_].is_free.get()), "staging of seen tokens");
  }
  std::byte* staged = pieces_[piece_].memory.as<std::byte>() + used_;
  std::memcpy(staged, data, bytes);
  used_ = std::min((used_ + bytes + kAlignment - 1) / kAlignment * kAlignment, kPieceBytes);
  return staged;
}

}  // namespace minfer::cuda
