#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "kernels/cpu/lanes/lane_kernels.h"

namespace minfer::cpu {
namespace {

/// The token that a row of the step before stands for: token 0 if the row could draw none.
int32_t token_of(const SampledToken& sampled) {
  return std::max(sampled.token, 0);
}

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{1} << 21;

int32_t threads_or_cores(int32_t threads) {
  if (threads < 0) fail("CPU backend: {} threads, expected 0 (all cores) or more", threads);
  return threads > 0 ? threads : num_cores();
}

/// The processor's name as Linux gives it.
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t value = line.find(": ");
    if (value != std::string::npos) return line.substr(value + 2);
  }
  return "unknown processor";
}

}  // namespace

CpuBackend::CpuBackend(int32_t threads, std::unique_ptr<HostCommunicator> ranks)
    : pool_(threads_or_cores(threads)),
      isa_(selected_isa()),
      lanes_(&lane_kernels(isa_)),
      ranks_(std::move(ranks)) {}

BackendInfo CpuBackend::info() const {
  return {.name = "cpu",
          .device = fmt::format("{}, {}", processor_name(), name(isa_)),
          .activation_dtype = DType::f32,
          .threads = pool_.threads(),
          .steps_ahead = kStepsAhead,
          .takes_masks = true,
          .cache_bytes = std::max(0L, sysconf(_SC_LEVEL3_CACHE_SIZE))};
}

Buffer CpuBackend::allocate(size_t bytes, std::string_view what) {
  const size_t alignment = bytes < kHugePage ? kAlignment : kHugePage;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* data = rounded < bytes ? nullptr : std::aligned_alloc(alignment, std::max(rounded, alignment));
  if (data == nullptr) fail("{}: cannot allocate {} bytes of memory", what, bytes);
  // Attention jumps between KV blocks of a few KiB: with small pages each jump would miss the TLB. This
  // is only a hint, so its result does not matter.
  if (alignment == kHugePage) madvise(data, rounded, MADV_HUGEPAGE);
  return Buffer(data, bytes, [](void* p) { std::free(p); });
}

Weight CpuBackend::load(const HostTensor& tensor) {
  if (tensor.quantise_to) return quantised(tensor);
  return {tensor.has_gaps() ? without_gaps(tensor) : tensor.data, tensor.dtype, tensor.count, tensor.rows,
          tensor.cols};
}

Weight CpuBackend::quantised(const HostTensor& tensor) {
  if (tensor.quantise_to != DType::fp8)
    fail("tensor {}: to {}, expected fp8", tensor.name, name(*tensor.quantise_to));
  const Buffer& blocks = copies_.emplace_back(allocate(tensor.loaded_bytes(), tensor.name));
  quantise_to_fp8(tensor, isa_, pool_, static_cast<BlockFp8*>(blocks.data()));
  return {blocks.data(), DType::fp8, tensor.count, tensor.rows, tensor.cols, tensor.dtype};
}

const void* CpuBackend::without_gaps(const HostTensor& tensor) {
  const Buffer& copy = copies_.emplace_back(allocate(tensor.bytes(), tensor.name));
  const size_t bytes = row_bytes(tensor.dtype, tensor.cols);
  auto* to = static_cast<std::byte*>(copy.data());
  for (int64_t matrix = 0; matrix < tensor.count; ++matrix) {
    for (int64_t row = 0; row < tensor.rows; ++row, to += bytes)
      std::memcpy(to, tensor.row(matrix, row), bytes);
  }
  return copy.data();
}

void CpuBackend::copy_to_device(void* device, const void* host, size_t bytes) {
  if (bytes > 0) std::memcpy(device, host, bytes);
}

void CpuBackend::copy_to_host(void* host, const void* device, size_t bytes) {
  if (bytes > 0) std::memcpy(host, device, bytes);
}

LaunchedStep CpuBackend::launch_step(const StepArgs& step, const ForwardPass& forward) {
  if (num_launched_ > num_finished_ + kStepsAhead) fail("{} steps are launched already", kStepsAhead + 1);
  if (awaiting_rows_) fail("launch_step: the step before it waits for its rows");
  const std::vector<SampledToken>& previous = sampled_[(num_launched_ + kStepsAhead) % sampled_.size()];
  std::vector<SampledToken>& sampled = sampled_[num_launched_++ % sampled_.size()];
  sampled.resize(std::max(step.rows.size(), static_cast<size_t>(step.later_rows + step.followed_rows)));
  stamps_ = step.stamps;
  const ForwardBatch batch = with_known_tokens(step.batch, previous);
  const Tensor logits = forward(batch);
  if (step.later_rows == 0) {
    draw(step, batch, logits, with_known_tokens(step.rows, previous), sampled);
  } else {
    if (stamps_ != nullptr && !stamps_->ops.empty()) stamps_->ops.back().end_ns = now_ns();
    awaiting_rows_ = {step, batch, logits};
  }
  return {};
}

void CpuBackend::launch_sampling(std::span<const SamplingRow> rows) {
  if (!awaiting_rows_) fail("launch_sampling: no step waits for its rows");
  std::vector<SampledToken>& sampled = sampled_[(num_launched_ - 1) % sampled_.size()];
  if (rows.size() != sampled.size())
    fail("launch_sampling: {} rows, expected {}", rows.size(), sampled.size());
  const auto [step, batch, logits] = *std::exchange(awaiting_rows_, std::nullopt);
  stamps_ = step.stamps;
  const size_t sample_op = stamps_ != nullptr ? stamps_->ops.size() : 0;
  draw(step, batch, logits, rows, sampled);
  if (step.stamps == nullptr) return;
  StepStamps::Stamp& stamp = step.stamps->ops[sample_op];
  stamp.launched_ns = stamp.begin_ns;  // so that the time before it counts for no op
}

void CpuBackend::draw(const StepArgs& step, const ForwardBatch& batch, Tensor logits,
                      std::span<const SamplingRow> rows, std::vector<SampledToken>& sampled) {
  for (size_t first = 0; first < rows.size(); first += static_cast<size_t>(logits.rows)) {
    if (first > 0) logits = step.more_logits(batch, static_cast<int32_t>(first));
    if (logits.rows < 1) fail("launch_step: no logits for row {} of {}", first, rows.size());
    const size_t count = std::min(rows.size() - first, static_cast<size_t>(logits.rows));
    stamp(step.sample_op);
    cpu::sample(logits, rows.subspan(first, count), std::span(sampled).subspan(first, count), context());
  }
  if (step.share_op >= 0) {
    // The rest of a step whose tokens the first rank draws.
    for (int64_t row = logits.rows; row < step.followed_rows; row += logits.rows)
      logits = step.more_logits(batch, static_cast<int32_t>(row));
    share_tokens(step.share_op, sampled);
  }
  if (stamps_ != nullptr) stamps_->end_ns = now_ns();
  stamps_ = nullptr;
}

HostCommunicator& CpuBackend::ranks() {
  if (ranks_ == nullptr) fail("the CPU backend has no other ranks");
  return *ranks_;
}

void CpuBackend::share_tokens(OpId op, std::span<SampledToken> sampled) {
  stamp(op);
  shared_tokens_.clear();
  for (const SampledToken& token : sampled)
    shared_tokens_.push_back(token.token);
  ranks().broadcast(shared_tokens_);
  stamp_arrival();
  if (ranks().rank().is_first()) return;
  for (size_t i = 0; i < sampled.size(); ++i)
    sampled[i].token = shared_tokens_[i];
}

ForwardBatch CpuBackend::with_known_tokens(ForwardBatch batch, std::span<const SampledToken> previous) {
  const std::span<const int32_t> ids(batch.token_ids, static_cast<size_t>(batch.num_tokens));
  if (std::ranges::none_of(ids, [](int32_t id) { return id < 0; })) return batch;
  token_ids_.assign(ids.begin(), ids.end());
  for (int32_t& id : token_ids_) {
    if (id < 0) id = token_of(previous[static_cast<size_t>(-1 - id)]);
  }
  batch.token_ids = token_ids_.data();
  return batch;
}

std::span<const SamplingRow> CpuBackend::with_known_tokens(std::span<const SamplingRow> rows,
                                                           std::span<const SampledToken> previous) {
  const auto lacks_token = [](const SamplingRow& row) { return row.pending_row >= 0 && has_penalties(row); };
  if (std::ranges::none_of(rows, lacks_token)) return rows;
  rows_.assign(rows.begin(), rows.end());
  counts_.resize(std::max(counts_.size(), rows.size()));
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!lacks_token(rows[i])) continue;
    const int32_t token = token_of(previous[static_cast<size_t>(rows[i].pending_row)]);
    std::vector<TokenCount>& counts = counts_[i];
    counts.assign(rows[i].counts.begin(), rows[i].counts.end());
    const auto found = std::ranges::find(counts, token, &TokenCount::token);
    if (found == counts.end()) {
      counts.push_back({.token = token, .output_count = 1, .in_prompt = false});
    } else {
      ++found->output_count;
    }
    rows_[i].counts = counts;
  }
  return rows_;
}

void CpuBackend::finish_step(std::span<SampledToken> out) {
  if (num_finished_ + (awaiting_rows_ ? 1 : 0) == num_launched_) fail("no step is launched to its end");
  // The results are copied: the next step may still read them.
  const std::vector<SampledToken>& sampled = sampled_[num_finished_++ % sampled_.size()];
  if (ranks_ != nullptr && !ranks_->rank().is_first()) return;  // they are the first rank's tokens
  if (out.size() != sampled.size()) fail("the step drew {} tokens, not {}", sampled.size(), out.size());
  std::ranges::copy(sampled, out.begin());
}

void CpuBackend::stamp(OpId op) {
  if (stamps_ != nullptr) stamps_->ops.push_back({.op = op, .begin_ns = now_ns()});
}

void CpuBackend::stamp_arrival() {
  if (stamps_ == nullptr || ranks_->arrived_ns() == 0) return;
  StepStamps::Stamp& stamp = stamps_->ops.back();
  stamp.waited_ns = StepStamps::waited(ranks_->arrived_ns() - stamp.begin_ns);
}

void CpuBackend::set_experts_read(int32_t experts) {
  if (stamps_ != nullptr) stamps_->ops.back().experts_read = experts;
}

void CpuBackend::all_reduce(OpId op, const AllReduceArgs& args) {
  stamp(op);
  const Tensor& part = args.part;
  const Tensor& x = args.x;
  check_f32("all_reduce: part", part, x.rows, part.stride);
  check_f32("all_reduce: x", x, part.rows, part.cols);
  ranks().all_reduce({part.f32(), static_cast<size_t>(part.rows * part.cols)});
  stamp_arrival();
  if (args.add_to_x) {
    for_each_row(x, context(), [&](int64_t t) {
      std::transform(x.f32_row(t), x.f32_row(t) + x.cols, part.f32_row(t), x.f32_row(t), std::plus<>());
    });
  } else if (part.data != x.data) {
    for_each_row(x, context(), [&](int64_t t) { std::copy_n(part.f32_row(t), x.cols, x.f32_row(t)); });
  }
  if (args.norm)
    cpu::norm({.x = x, .weight = args.norm, .eps = args.norm_eps, .out = args.normed}, context());
}

void CpuBackend::gather_columns(OpId op, const Tensor& part, const Tensor& out) {
  stamp(op);
  const Rank rank = ranks().rank();
  check_f32("gather_columns: part", part, out.rows, part.stride);
  check_f32("gather_columns: out", out, part.rows, part.cols * rank.count);
  const auto size = static_cast<size_t>(part.rows * part.cols);
  gathered_.resize(rank.is_first() ? size * static_cast<size_t>(rank.count) : 0);
  ranks().gather({part.f32(), size}, gathered_);
  stamp_arrival();
  if (!rank.is_first()) return;
  for_each_row(out, context(), [&](int64_t row) {
    for (int64_t of = 0; of < rank.count; ++of)
      std::copy_n(gathered_.data() + (of * part.rows + row) * part.cols, part.cols,
                  out.f32_row(row) + of * part.cols);
  });
}

}  // namespace minfer::cpu

namespace minfer {

std::unique_ptr<Backend> make_cpu_backend(int32_t threads, std::unique_ptr<HostCommunicator> ranks) {
  return std::make_unique<cpu::CpuBackend>(threads, std::move(ranks));
}

}  // namespace minfer
