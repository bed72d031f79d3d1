#include "kernels/cuda/step/step_memory.h"

#include <cstring>

#include "kernels/base/error.h"

namespace minfer::cuda {
namespace {

constexpr size_t kAlignment = 256;

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Hands out pieces of one allocation; with a null base it only counts.
class Pieces {
 public:
  explicit Pieces(void* base) : base_(static_cast<std::byte*>(base)) {}
  template <class T>
  T* take(size_t count) {
    auto* piece = reinterpret_cast<T*>(base_ + bytes_);
    bytes_ += aligned(count * sizeof(T));
    return piece;
  }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  size_t bytes_ = 0;
};

template <class T>
size_t put(std::byte* to, uint32_t offset, const T* from, size_t count) {
  if (count > 0) std::memcpy(to + offset, from, count * sizeof(T));
  return count * sizeof(T);
}

}  // namespace

StepMemory::StepMemory(const StepLimits& limits) : limits_(limits) {
  lay_out_staging();
  const auto tokens = static_cast<size_t>(limits.max_tokens);
  const auto sequences = static_cast<size_t>(limits.max_sequences);
  const auto rows = static_cast<size_t>(limits.max_logit_rows);
  const auto stamps = static_cast<size_t>(num_stamps());
  pointers_.expert_words = (limits.experts + 31) / 32;
  pointers_.routed_layers = limits.routed_layers;
  const auto routed_layers = static_cast<size_t>(limits.routed_layers);
  const auto lay_out_device = [&](void* base) {
    Pieces pieces(base);
    pointers_.token_ids = pieces.take<int32_t>(tokens);
    pointers_.positions = pieces.take<int32_t>(tokens);
    pointers_.slots = pieces.take<int32_t>(tokens);
    pointers_.query_start = pieces.take<int32_t>(sequences + 1);
    pointers_.context_len = pieces.take<int32_t>(sequences);
    pointers_.logit_rows = pieces.take<int32_t>(rows);
    pointers_.block_table = pieces.take<int32_t>(num_rows() * static_cast<size_t>(limits.max_blocks));
    pointers_.window_slots = limits.has_window_table ? pieces.take<int32_t>(tokens) : nullptr;
    pointers_.state_slots = limits.is_recurrent ? pieces.take<int32_t>(sequences) : nullptr;
    pointers_.sampling = pieces.take<std::byte>(aligned(SampleOps::packed_bytes(rows)));
    pointers_.previous_tokens = pieces.take<int32_t>(rows);
    pointers_.tokens = pieces.take<int32_t>(rows);
    pointers_.results = pieces.take<std::byte>(SampleOps::result_bytes(limits.max_logit_rows));
    pointers_.stamps = pieces.take<unsigned long long>(stamps);
    pointers_.step = pieces.take<uint32_t>(1);
    pointers_.chosen_experts =
        pieces.take<uint32_t>(routed_layers * static_cast<size_t>(pointers_.expert_words));
    pointers_.num_tokens = pieces.take<int32_t>(1);
    return pieces.bytes();
  };
  device_ = DeviceBuffer::zeros(lay_out_device(nullptr), "step inputs");
  lay_out_device(device_.data());

  const auto lay_out_host = [&](void* base) {
    Pieces pieces(base);
    for (size_t slot = 0; slot < 2; ++slot) {
      pointers_.staged[slot] = pieces.take<std::byte>(staged_bytes_);
      pointers_.host_stamps[slot] = pieces.take<unsigned long long>(stamps);
      pointers_.host_results[slot] = pieces.take<std::byte>(SampleOps::result_bytes(limits.max_logit_rows));
      pointers_.host_experts[slot] = pieces.take<int32_t>(routed_layers);
    }
    return pieces.bytes();
  };
  host_ = PinnedBuffer(lay_out_host(nullptr), "page-locked step inputs and results");
  lay_out_host(host_.data());
}

void StepMemory::lay_out_staging() {
  const auto tokens = static_cast<size_t>(limits_.max_tokens);
  const auto sequences = static_cast<size_t>(limits_.max_sequences);
  const auto rows = static_cast<size_t>(limits_.max_logit_rows);
  size_t next = aligned(sizeof(StagedHeader));
  const auto take = [&next](size_t bytes) {
    const size_t offset = next;
    next += aligned(bytes);
    return static_cast<uint32_t>(offset);
  };
  offsets_.token_ids = take(tokens * sizeof(int32_t));
  offsets_.positions = take(tokens * sizeof(int32_t));
  offsets_.slots = take(tokens * sizeof(int32_t));
  offsets_.window_slots = take(limits_.has_window_table ? tokens * sizeof(int32_t) : 0);
  offsets_.query_start = take((sequences + 1) * sizeof(int32_t));
  offsets_.context_len = take(sequences * sizeof(int32_t));
  offsets_.state_slots = take(limits_.is_recurrent ? sequences * sizeof(int32_t) : 0);
  offsets_.logit_rows = take(rows * sizeof(int32_t));
  offsets_.changes = take(num_rows() * sizeof(StagedChange));
  offsets_.change_blocks = take(num_rows() * static_cast<size_t>(limits_.max_blocks) * sizeof(int32_t));
  offsets_.sampling = take(SampleOps::packed_bytes(rows));
  staged_bytes_ = next;
}

SampleMode StepMemory::stage(size_t slot, const ForwardBatch& host, std::span<const SamplingRow> rows,
                             std::span<const PlacedRow> placed) {
  if (host.num_tokens > limits_.max_tokens || host.num_sequences > limits_.max_sequences ||
      host.num_logit_rows > limits_.max_logit_rows || std::ssize(rows) > limits_.max_logit_rows) {
    fail("a step of {} tokens, {} sequences and {} logit rows exceeds the limits of {}, {} and {}",
         host.num_tokens, host.num_sequences, host.num_logit_rows, limits_.max_tokens, limits_.max_sequences,
         limits_.max_logit_rows);
  }
  if ((host.window_row > 0) != limits_.has_window_table)
    fail("a step with {} block tables, expected {}", host.window_row > 0 ? 2 : 1,
         limits_.has_window_table ? 2 : 1);
  if ((host.state_slots != nullptr) != limits_.is_recurrent)
    fail("a step {} slots of states, expected {}", limits_.is_recurrent ? "without" : "with",
         limits_.is_recurrent ? "one a sequence" : "none");
  std::byte* const to = staging(slot);
  const auto tokens = static_cast<size_t>(host.num_tokens);
  const auto sequences = static_cast<size_t>(host.num_sequences);
  put(to, offsets_.token_ids, host.token_ids, tokens);
  put(to, offsets_.positions, host.positions, tokens);
  put(to, offsets_.slots, host.slots, tokens);
  if (host.window_row > 0) put(to, offsets_.window_slots, host.window_slots, tokens);
  put(to, offsets_.query_start, host.query_start, sequences > 0 ? sequences + 1 : 0);
  put(to, offsets_.context_len, host.context_len, sequences);
  if (limits_.is_recurrent) put(to, offsets_.state_slots, host.state_slots, sequences);
  put(to, offsets_.logit_rows, host.logit_rows, static_cast<size_t>(host.num_logit_rows));
  uint32_t next_change = offsets_.changes, next_block = 0;
  for (const BlockTableChange& change : host.changes) {
    const bool is_of_windows = host.window_row > 0 && change.row >= host.window_row;
    const int32_t row = is_of_windows ? change.row - host.window_row + limits_.max_sequences : change.row;
    const StagedChange staged{row, change.first, change.count, static_cast<int32_t>(next_block)};
    next_change += static_cast<uint32_t>(put(to, next_change, &staged, 1));
    const int32_t* blocks = host.block_table + int64_t{change.row} * host.max_blocks + change.first;
    put(to, offsets_.change_blocks + next_block * static_cast<uint32_t>(sizeof(int32_t)), blocks,
        static_cast<size_t>(change.count));
    next_block += static_cast<uint32_t>(change.count);
  }
  const size_t sampling_bytes = rows.empty() ? 0 : SampleOps::packed_bytes(rows.size());
  const StagedHeader header{host.num_tokens, host.num_sequences, host.num_logit_rows,
                            static_cast<int32_t>(host.changes.size()), static_cast<int32_t>(sampling_bytes)};
  put(to, 0, &header, 1);
  return SampleOps::pack(rows, placed, to + offsets_.sampling);
}

SampleMode StepMemory::bring_rows(cudaStream_t stream, size_t slot, std::span<const SamplingRow> rows,
                                  std::span<const PlacedRow> placed) {
  std::byte* const staged = staging(slot) + offsets_.sampling;
  const SampleMode mode = SampleOps::pack(rows, placed, staged);
  check(cudaMemcpyAsync(pointers_.sampling, staged, SampleOps::packed_bytes(rows.size()),
                        cudaMemcpyHostToDevice, stream),
        "copying sampling parameters");
  return mode;
}

unsigned long long* StepMemory::stamp(int32_t index) const {
  if (index >= num_stamps()) fail("a step of more ops than its limits say, expected {}", limits_.max_stamps);
  return pointers_.stamps + index;
}

ChosenExperts StepMemory::chosen_experts(int32_t index) const {
  if (index >= pointers_.routed_layers) return {};
  return {pointers_.chosen_experts + int64_t{index} * pointers_.expert_words, pointers_.num_tokens};
}

ForwardBatch StepMemory::device_batch(const ForwardBatch& host, const LaunchSizes& sizes) const {
  ForwardBatch batch = host;
  batch.num_tokens = sizes.tokens;
  batch.num_logit_rows = sizes.logit_rows;
  batch.num_sequences = sizes.sequences;
  // Only graphs have padding; they hold decoding sequences or prompts.
  if (host.num_decode_sequences > 0) {
    batch.num_decode_sequences += sizes.sequences - host.num_sequences;
    batch.num_decode_tokens += sizes.tokens - host.num_tokens;
  }
  batch.token_ids = pointers_.token_ids;
  batch.positions = pointers_.positions;
  batch.slots = pointers_.slots;
  batch.window_slots = pointers_.window_slots;
  batch.window_row = limits_.has_window_table ? limits_.max_sequences : 0;
  batch.query_start = pointers_.query_start;
  batch.context_len = pointers_.context_len;
  batch.block_table = pointers_.block_table;
  batch.state_slots = pointers_.state_slots;
  batch.logit_rows = pointers_.logit_rows;
  batch.max_blocks = limits_.max_blocks;
  batch.changes = {};
  return batch;
}

}  // namespace minfer::cuda
