#include "engine/ranks/rank_model.h"

#include <algorithm>
#include <utility>

#include "engine/options/sizes.h"
#include "profiling/record/machine.h"

namespace minfer {
namespace {

/// The share of free memory that the KV cache takes by default: the rest is for weights in page cache and other programs.
constexpr double kKvShareOfFreeMemory = 0.25;
/// CUDA graphs are instantiated as they are first needed, and their memory is the driver's.
constexpr int64_t kGraphReserveBytes = int64_t{256} << 20;

}  // namespace

RankModel::RankModel(const ModelSource& source, const EngineOptions& options, int32_t logit_slice,
                     const LoadProgress& progress, std::unique_ptr<Backend> backend)
    : source_(source),
      options_(options),
      backend_(std::move(backend)),
      weights_(load(progress)),
      limits_{.max_tokens = options.max_num_batched_tokens,
              .logit_slice = logit_slice,
              .max_positions = longest_sequence(options, source.config()),
              .max_sequences = std::min(options.max_num_seqs, options.max_num_batched_tokens)} {
  const DecoderPrograms programs(config(), weights_, {}, *backend_, limits_);
  workspace_bytes_ = minfer::workspace_bytes(config(), programs, limits_);
  StepLimits limits =
      step_limits(config(), programs, limits_, limits_.max_sequences,
                  static_cast<int32_t>(blocks_for(limits_.max_positions, options.block_size)));
  limits.has_window_table = options_.kv_layout->has_window_table;
  backend_->prepare(limits);
}

ModelWeights RankModel::load(const LoadProgress& progress) {
  if (const std::optional<DeviceMemory> memory = backend_->device_memory()) {
    taken_by_others_bytes_ = memory->total_bytes - memory->free_bytes;
    const int64_t wanted = gpu_weight_bytes(source_, options_);
    if (wanted > memory->free_bytes) {
      fail("{}: weights of {} bytes do not fit into the memory of a GPU, {} of {} bytes are free: {}",
           source_.name(), wanted, memory->free_bytes, memory->total_bytes,
           what_would_fit(source_, options_,
                          {.usable_bytes = usable_bytes(*memory), .other_bytes = kGraphReserveBytes}));
    }
  }
  return load_weights(source_, *backend_, progress, options_.quantization);
}

int64_t RankModel::usable_bytes(const DeviceMemory& memory) const {
  return static_cast<int64_t>(options_.gpu_memory_utilization * static_cast<double>(memory.total_bytes)) -
         taken_by_others_bytes_;
}

int64_t RankModel::state_bytes() const {
  return options_.num_state_slots * state_slot_bytes(config());
}

int64_t RankModel::host_bytes_beside_states() const {
  const auto free_bytes = static_cast<int64_t>(available_memory_bytes());
  if (state_bytes() == 0 || state_bytes() < free_bytes) return free_bytes - state_bytes();
  const int64_t slot_bytes = state_slot_bytes(config());
  fail(
      "max-num-seqs: the states of {} sequences take {} bytes, {} each, and {} bytes of memory are free: "
      "lower it to {}",
      options_.num_state_slots, state_bytes(), slot_bytes, free_bytes,
      std::max<int64_t>(1, (free_bytes - 1) / slot_bytes));
}

/// On a device, everything else has been allocated by now, except activations, states of running sequences, and graphs.
CacheRoom RankModel::cache_room() const {
  const std::optional<DeviceMemory> memory = backend_->device_memory();
  const int64_t ranks = options_.tensor_parallel_size;
  if (!memory) {
    const int64_t bytes = host_bytes_beside_states();
    const auto share = static_cast<int64_t>(kKvShareOfFreeMemory * static_cast<double>(bytes));
    return {.cache_bytes = (options_.kv_cache_bytes > 0 ? options_.kv_cache_bytes : share) / ranks,
            .memory_bytes = bytes / ranks};
  }
  const int64_t left_bytes = device_bytes_left(*memory);
  return {.cache_bytes = options_.kv_cache_bytes > 0 ? options_.kv_cache_bytes / ranks : left_bytes,
          .memory_bytes = left_bytes};
}

int64_t RankModel::device_bytes_left(const DeviceMemory& memory) const {
  const int64_t taken = memory.total_bytes - memory.free_bytes - taken_by_others_bytes_;
  const int64_t coming =
      workspace_bytes_ + state_bytes() + options_.draft_workspace_bytes + kGraphReserveBytes;
  const int64_t budget = usable_bytes(memory) - taken - coming;
  if (budget <= 0 && options_.kv_cache_bytes == 0) {
    const int64_t wanted = gpu_weight_bytes(source_, options_);
    fail(
        "gpu-memory-utilization: {} of {} bytes leaves nothing for the KV cache: {} bytes are taken by the "
        "weights and what goes with "
        "them, {} by other programs, {} more are needed for activations and states: raise it, or free "
        "memory; {}",
        options_.gpu_memory_utilization, memory.total_bytes, taken, taken_by_others_bytes_, coming,
        what_would_fit(source_, options_,
                       {.usable_bytes = usable_bytes(memory),
                        .other_bytes = std::max<int64_t>(0, taken - wanted) + coming}));
  }
  return budget;
}

int64_t RankModel::most_kv_blocks(int64_t copy_bytes) const {
  const int64_t budget = cache_room().cache_bytes - (options_.num_blocks > 0 ? 0 : copy_bytes);
  const int64_t block_bytes = kv_block_bytes(config(), options_, options_.kv_cache_dtype.value());
  return std::max<int64_t>(1, budget / (block_bytes + options_.draft_block_bytes));
}

void RankModel::complete(EngineOptions& options, const std::function<int64_t(int64_t)>& least) {
  choose_state_copies(options, config(), cache_room());
  if (config().is_recurrent()) limit_state_copies(options, least(*options.num_state_copies));
  settle_state_before_drafts(options, config());
  const int64_t copy_bytes = *options.num_state_copies * state_slot_bytes(config());
  choose_kv_blocks(options, config(), least(most_kv_blocks(copy_bytes)));
  make_decoder(options);
}

void RankModel::make_decoder(const EngineOptions& options) {
  options_ = options;
  kv_ = std::make_unique<KvCache>(*backend_, config(), *options.kv_layout, options.kv_cache_dtype.value(),
                                  options.num_blocks, options.block_size);
  states_ = std::make_unique<RecurrentStatePool>(
      *backend_, config(), options.num_state_slots + options.num_state_copies.value_or(0));
  limits_.max_positions = options.max_model_len;
  decoder_ = std::make_unique<Decoder>(config(), std::move(weights_), *backend_, *kv_, *states_, limits_);
  backend_->name_ops(decoder_->ops());
}

LaunchedStep RankModel::launch(StepArgs step, const ForwardPass& forward) {
  const FrameOps& frame = decoder_->frame();
  step.inputs_op = frame.inputs;
  step.sample_op = frame.sample;
  step.results_op = frame.results;
  step.share_op = step.share_op < 0 ? -1 : frame.share;
  step.more_logits = [this, drafts = step.drafts](const ForwardBatch& batch, int32_t first_row) {
    return decoder_->logits(batch, first_row, drafts);
  };
  for (const StateCopy& copy : step.batch.state_restores)
    states_->copy(*backend_, copy);
  const LaunchedStep launched = backend_->launch_step(step, forward);
  for (const StateCopy& copy : step.batch.state_saves)
    states_->copy(*backend_, copy);
  return launched;
}

LaunchedStep RankModel::launch(const StepArgs& step) {
  return launch(step, [this, drafts = step.drafts](const ForwardBatch& batch) {
    return decoder_->forward(batch, drafts);
  });
}

}  // namespace minfer
