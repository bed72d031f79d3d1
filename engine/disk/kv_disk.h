#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "engine/disk/block_files.h"
#include "engine/memory/block_manager.h"
#include "engine/options/engine_options.h"
#include "engine/scheduling/step_cost.h"
#include "kernels/backend.h"
#include "models/decoder/memory/kv_cache.h"
#include "models/decoder/weights/model_source.h"
#include "profiling/record/step_record.h"

namespace minfer {

/// The prefix cache on disk. A block of the pool whose memory is about to be taken is written to a file, and read into the pool again when
/// a sequence is admitted that continues with it. An equal key means equal bytes, so answers are those of a hit in memory.
///
/// A thread of its own reads and writes the files. The engine's thread calls everything else. It copies blocks between the pool and slots
/// of staging memory, in the order of steps and without waiting; a slot is handed on when its copy has ended. If no slot is free, a block to
/// be written is dropped, and a block to be read is asked for later.
///
/// A sequence that reads holds its blocks and waits, others go on. Reading must cost less than computing: blocks times the mean time of a
/// block read, against the time that StepCost expects of a step with their tokens. A time that is not known counts as 0. Where
/// reading does not pay, its time counts as an eighth less from then on, so that a disk that was slow once is tried again.
class KvDisk {
 public:
  /// `options` with all sizes chosen. Throws Error if layers with windows have a block table of their own, if there is no prefix cache, or
  /// if a block exceeds the bound, and as BlockFiles. Hashes all weights. All references must outlive it.
  KvDisk(const ModelSource& model, const EngineOptions& options, Backend& backend, const KvCache& kv,
         BlockManager& blocks, const StepCost& cost);

  /// For Scheduler::on_admission(): sets Sequence::read_end if blocks behind its cached prefix are to be read.
  void begin_reading(Sequence& sequence);
  /// Moves blocks that were read into the pool, and asks for the next ones of the `running` sequences. Between two steps; `is_idle`: none
  /// is under way.
  void advance(std::span<Sequence* const> running, bool is_idle);
  /// Waits a moment for a block to be read. For an engine without other work.
  void wait() {
    if (!asked_.empty()) wait_for_done();
  }
  /// The number of copies launched so far.
  int64_t num_copies() const { return num_copied_ + std::ssize(copying_); }
  /// The first `num_copies` copies have ended.
  void copied(int64_t num_copies);
  /// Writes all published blocks, the most recently used first, until `patience` is over. No step is under way.
  void save_all(std::chrono::milliseconds patience);
  const DiskCounts& counts() const { return counts_; }

 private:
  struct Job {
    BlockKey key;
    std::byte* data;  ///< its slot
    int64_t time_ns;  ///< of its use, since 1970
    bool is_write;
    bool succeeded = false;
    int64_t took_ns = 0;
  };

  void run(const std::stop_token& stop);
  void add(const Job& job);
  void take_done();
  void copy(const Job& job, BlockId id);
  void keep(BlockId id, const BlockKey& key, int64_t time_ns);
  void take_blocks(Sequence& sequence);
  void ask(Sequence& sequence);
  void wait_for_done();

  Backend& backend_;
  BlockManager& blocks_;
  const StepCost& cost_;
  const KvDiskOptions options_;
  const std::span<const KvArrays> arrays_;
  const size_t block_bytes_;
  const BlockKey root_;
  BlockFiles files_;
  const size_t num_slots_;  ///< for each direction
  const Buffer staging_;
  std::vector<std::byte*> read_slots_, write_slots_;  ///< the free ones
  std::deque<Job> copying_;  ///< writes whose blocks, and reads whose slots, are being copied
  int64_t num_copied_ = 0;
  std::vector<Job> come_;                 ///< blocks read, until advance() returns
  std::map<BlockKey, const Job*> asked_;  ///< blocks to be read; null: not read yet
  double read_ns_ = 0.0;                  ///< mean time of a block; 0: not known
  DiskCounts counts_;

  std::mutex mutex_;
  std::condition_variable_any wake_, changed_;
  std::deque<Job> reads_, writes_;  ///< for the thread, which prefers reads
  std::vector<Job> done_;
  std::jthread thread_;  ///< last: everything above outlives it
};

}  // namespace minfer
