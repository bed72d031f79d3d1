#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/options/speculation_options.h"
#include "kernels/backend.h"
#include "kernels/dtype.h"
#include "models/decoder/memory/kv_layout.h"

namespace minfer {

class ProcessGroup;

/// The device of the decoder. `automatic`: the first GPU if the build and the machine have one, else the CPU.
enum class DeviceChoice : uint8_t { automatic, cpu, cuda };

/// The order of service: by arrival; by lower priority; or, within bounds, by shorter prompt (see Scheduler).
enum class SchedulingPolicy : uint8_t { fcfs, priority, shortest };
std::string_view name(SchedulingPolicy policy);

/// Where copies of a sequence's state are made for the prefix cache: at ends of KV blocks where other
/// prompts are likely to go on. A copy is made at the last end of a block in front of each of these places:
/// - the end of the prompt, less what templates put behind the last message and take back in the
///   next turn (an opened answer or thought): the next turn of a conversation begins anew there;
/// - the end of what the prompt has in common with earlier prompts that are known only by their KV blocks: instructions and
///   documents that requests share, from the third request on (branch points: Marconi, Pan et al. 2024, arXiv:2411.19379);
/// - every `interval` tokens, in answers too: for the second request that shares a long prompt, and for a preempted sequence to resume.
/// If two places are nearer than `least_tokens` to each other, only the first gets a copy. A place so near
/// to the found prefix gets none: a copy would cost a step and a slot for what is soon computed again.
struct StateCopyRule {
  int32_t interval = 4096;
  int32_t reopened_tokens = 8;  ///< last tokens of a prompt that the next turn may replace
  int32_t least_tokens = 64;
};

/// The prefix cache on disk (KvDisk).
struct KvDiskOptions {
  std::string folder = {};                ///< empty: there is none
  int64_t max_bytes = int64_t{20} << 30;  ///< of all files in it
  /// Called on the disk's thread before it reads or writes a file. For tests of a slow disk.
  std::function<void(bool is_read)> before_file = nullptr;
};

/// Options of the engine that mean the same in every command. 0 means that the engine chooses.
struct EngineOptions {
  DeviceChoice device = DeviceChoice::automatic;
  double gpu_memory_utilization = 0.9;  ///< share of the GPU's memory for everything together
  std::optional<DType> dtype = {};      ///< activations on a GPU: bf16 or f32; absent: chosen by the weights
  /// The type that the F32, F16 and BF16 matrices of layers are converted to at load: fp8; absent: they stay as they are.
  std::optional<DType> quantization = {};
  bool cuda_graphs = true;  ///< replay decode steps as CUDA graphs
  /// Steps launched before the step in front of them has finished; absent: as many as the backend can. Set fewer for comparisons.
  std::optional<int32_t> steps_ahead = {};
  int32_t max_model_len = 0;   ///< tokens of prompt and output together; 0: the model's context length
  int32_t max_num_seqs = 256;  ///< sequences running at once
  int32_t max_num_batched_tokens = 2048;  ///< token budget of a step
  int32_t block_size = 16;                ///< tokens of a KV block of a layer
  int32_t num_blocks = 0;                 ///< KV blocks; 0: from kv_cache_bytes
  int64_t kv_cache_bytes = 0;  ///< 0: from gpu_memory_utilization, or a quarter of free host memory
  std::optional<DType> kv_cache_dtype = {};  ///< absent: the backend's activation type
  std::optional<KvLayout> kv_layout = {};    ///< absent: chosen by the model's windows
  bool enable_prefix_caching = true;
  /// Slots for what the device keeps of each running sequence beside its KV blocks: states (RecurrentStatePool), and hidden states for
  /// drafts by the model's own layer. Chosen by the model; 0: nothing.
  int32_t num_state_slots = 0;
  bool is_recurrent = false;  ///< chosen by the model: its layers keep states
  /// Further slots, for copies of states; without copies, the prefix cache finds nothing of a model with states. Absent: chosen (sizes.h).
  std::optional<int32_t> num_state_copies = {};
  StateCopyRule state_copy_rule = {};
  KvDiskOptions kv_disk = {};
  std::optional<uint64_t> prefix_hash_key = {};  ///< absent: a random one, drawn when the engine starts
  bool enable_chunked_prefill = true;
  /// Milliseconds that a step with prompts should take while a sequence
  /// decodes; 0: no limit; absent: chosen by what prompts lose (PrefillBudget).
  std::optional<double> target_itl_ms = 0.0;
  SchedulingPolicy policy = SchedulingPolicy::fcfs;
  SpeculationOptions speculation = {};
  /// The memory that a draft model takes from the KV cache's: for each block, and once. Set by Engine.
  int64_t draft_block_bytes = 0, draft_workspace_bytes = 0;
  int32_t stream_interval = 1;
  int32_t threads = 0;
  int32_t tensor_parallel_size = 1;  ///< ranks that share the model: GPUs, or on the CPU groups of threads
  /// Not null: the ranks are these processes. The first one leads the others.
  std::shared_ptr<ProcessGroup> processes = {};
  AllReduceChoice all_reduce = AllReduceChoice::automatic;  ///< how GPUs add up their results
  /// Each rank other than the first calls it on its thread before it launches a step. For tests of ranks that fail or hang.
  std::function<void(Rank rank, int64_t step)> on_rank_step = nullptr;
  DeviceTracer* tracer = nullptr;  ///< instead of the backend's: for tests
  int32_t rank_timeout_s = 0;      ///< time that ranks wait for another; 0: 5 on GPUs, 60 on the CPU
  uint64_t seed = 0;
};

}  // namespace minfer
