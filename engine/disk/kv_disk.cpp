#include "engine/disk/kv_disk.h"

#include <algorithm>
#include <csignal>

#include <fmt/format.h>
#include <xxhash.h>

#include "engine/options/sizes.h"
#include "kernels/base/clock.h"
#include "models/decoder/config/config_facts.h"

namespace minfer {
namespace {

constexpr int kFormat = 1;  // of the bytes of a block
constexpr size_t kStagingBytes = 128 << 20, kFewestSlots = 4, kMostSlots = 512;
constexpr std::chrono::milliseconds kMoment{2};

int64_t ns_since_1970() {
  const auto time = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

/// A hash of all that the bytes of a block depend on, beside its tokens and those before it.
BlockKey fingerprint(const ModelSource& model, const EngineOptions& options, const BackendInfo& backend) {
  std::string facts = fmt::format(
      "{}, {}, {}, {}, {}, {} tokens of {} in {}", kFormat, backend.name, backend.device,
      name(backend.activation_dtype), options.quantization ? name(*options.quantization) : "as it is",
      options.block_size, name(*options.kv_cache_dtype), model.config().num_all_layers());
  for (const RopeConfig& rope : model.config().ropes)  // LongRoPE has a table for long contexts
    if (rope.scaling.kind == RopeScaling::Kind::long_rope)
      facts += options.max_model_len > rope.scaling.original_context ? ", long" : ", short";
  for (const ConfigFact& fact : config_facts(model.config()))
    facts += fmt::format("\n{}: {}", fact.name, fact.value);
  for (const HostTensor& tensor : model.tensors()) {
    const XXH128_hash_t hash = XXH3_128bits(tensor.data, tensor.bytes());
    facts += fmt::format("\n{} {} {} {} {} {:016x}{:016x}", tensor.name, name(tensor.dtype), tensor.count,
                         tensor.rows, tensor.cols, hash.high64, hash.low64);
  }
  return hash_behind({}, std::as_bytes(std::span(facts)));
}

/// The bytes of a block, if blocks can be kept.
size_t checked_bytes(const ModelConfig& config, const EngineOptions& options) {
  if (options.kv_layout->has_window_table)
    fail("kv-cache-dir: layers with windows have KV blocks of their own, which are not kept on disk");
  if (!options.enable_prefix_caching) fail("kv-cache-dir: there is no prefix cache");
  const int64_t bytes = kv_block_bytes(config, options, *options.kv_cache_dtype);
  const int64_t most = options.kv_disk.max_bytes, least = bytes + BlockFiles::kHeaderBytes;
  if (most < least) fail("kv-cache-disk: {} bytes, expected at least {}, the size of a block", most, least);
  return static_cast<size_t>(bytes);
}

}  // namespace

KvDisk::KvDisk(const ModelSource& model, const EngineOptions& options, Backend& backend, const KvCache& kv,
               BlockManager& blocks, const StepCost& cost)
    : backend_(backend),
      blocks_(blocks),
      cost_(cost),
      options_(options.kv_disk),
      arrays_(kv.arrays()),
      block_bytes_(checked_bytes(model.config(), options)),
      root_(fingerprint(model, options, backend.info())),
      files_(options_.folder, options_.max_bytes, root_),
      num_slots_(std::clamp(kStagingBytes / block_bytes_, kFewestSlots, kMostSlots)),
      staging_(backend.allocate_host(2 * num_slots_ * block_bytes_, "KV blocks from and to disk")) {
  auto* slot = static_cast<std::byte*>(staging_.data());
  for (std::vector<std::byte*>* slots : {&read_slots_, &write_slots_})
    for (size_t i = 0; i < num_slots_; ++i, slot += block_bytes_)
      slots->push_back(slot);
  blocks_.keep_blocks(root_, [this](BlockId id, const BlockKey& key) { keep(id, key, ns_since_1970()); });
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

/// The disk's thread: ends when it is to stop and nothing is left to write.
void KvDisk::run(const std::stop_token& stop) {
  sigset_t all;
  sigfillset(&all);  // also SIGXFSZ: a file too large is an error of the call
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, stop, [this] { return !reads_.empty() || !writes_.empty(); });
    std::deque<Job>& jobs = reads_.empty() ? writes_ : reads_;
    if (jobs.empty()) return;
    Job job = jobs.front();
    jobs.pop_front();
    lock.unlock();
    const std::span block(job.data, block_bytes_);
    const int64_t begin_ns = now_ns();
    if (options_.before_file) options_.before_file(!job.is_write);
    job.succeeded =
        job.is_write ? files_.write(job.key, block, job.time_ns) : files_.read(job.key, block, job.time_ns);
    job.took_ns = now_ns() - begin_ns;
    lock.lock();
    done_.push_back(job);
    changed_.notify_one();
  }
}

void KvDisk::add(const Job& job) {
  const std::lock_guard lock(mutex_);
  (job.is_write ? writes_ : reads_).push_back(job);
  wake_.notify_one();
}

/// Copies a block from the pool to the slot of a write, or from the slot of a read to the pool.
void KvDisk::copy(const Job& job, BlockId id) {
  std::byte* slot = job.data;
  for (const KvArrays& arrays : arrays_) {
    std::byte* const block = arrays.base + static_cast<size_t>(id) * arrays.bytes;
    job.is_write ? backend_.copy_rows(slot, arrays.bytes, block, arrays.pitch, arrays.bytes, arrays.count)
                 : backend_.copy_rows(block, arrays.pitch, slot, arrays.bytes, arrays.bytes, arrays.count);
    slot += arrays.count * arrays.bytes;
  }
}

void KvDisk::copied(int64_t num_copies) {
  for (; num_copied_ < num_copies; ++num_copied_) {
    const Job& job = copying_.front();
    job.is_write ? add(job) : read_slots_.push_back(job.data);
    copying_.pop_front();
  }
}

void KvDisk::keep(BlockId id, const BlockKey& key, int64_t time_ns) {
  if (files_.touch(key, time_ns)) return;
  if (write_slots_.empty()) {
    ++counts_.dropped;
    return;
  }
  const Job job{.key = key, .data = write_slots_.back(), .time_ns = time_ns, .is_write = true};
  write_slots_.pop_back();
  copy(job, id);
  copying_.push_back(job);
}

void KvDisk::begin_reading(Sequence& sequence) {
  const int64_t time_ns = ns_since_1970();
  const auto begin = static_cast<int32_t>(sequence.blocks.size());
  const int32_t size = blocks_.block_size(), most = (sequence.size() - 1) / size;
  int32_t end = begin;
  while (end < most && files_.touch(blocks_.key(sequence, end), time_ns - end))
    ++end;
  if (end == begin) return;
  BatchShape computed;
  computed.add_sequence(false, end * size, (end - begin) * size, 0);
  const auto compute_ns = static_cast<double>(cost_.predict_ns(computed));
  if (compute_ns > 0.0 && (end - begin) * read_ns_ >= compute_ns) {
    read_ns_ *= 0.875;
  } else if (blocks_.allocate(sequence, end * size)) {
    sequence.read_end = end;
    ask(sequence);
  }
}

void KvDisk::ask(Sequence& sequence) {
  const int64_t time_ns = ns_since_1970();
  for (int32_t i = sequence.num_computed / blocks_.block_size();
       i < sequence.read_end && !read_slots_.empty(); ++i) {
    const BlockKey& key = blocks_.key(sequence, i);
    if (!asked_.emplace(key, nullptr).second) continue;
    add({.key = key, .data = read_slots_.back(), .time_ns = time_ns - i, .is_write = false});
    read_slots_.pop_back();
  }
}

void KvDisk::advance(std::span<Sequence* const> running, bool is_idle) {
  if (is_idle && !copying_.empty()) {
    backend_.synchronize();
    copied(num_copies());
  }
  take_done();
  for (Sequence* sequence : running)
    if (sequence->read_end > 0) take_blocks(*sequence);
  for (const Job& job : come_) {
    if (job.is_write) continue;
    asked_.erase(job.key);
    copying_.push_back(job);
  }
  come_.clear();
  for (Sequence* sequence : running)
    if (sequence->read_end > 0) ask(*sequence);
}

/// Takes what the disk's thread has done since the last call.
void KvDisk::take_done() {
  {
    const std::lock_guard lock(mutex_);
    come_.swap(done_);
  }
  for (const Job& job : come_) {
    if (job.is_write) {
      write_slots_.push_back(job.data);
      ++(job.succeeded ? counts_.written : counts_.dropped);
      continue;
    }
    asked_[job.key] = &job;
    ++(job.succeeded ? counts_.read : counts_.lost);
    if (!job.succeeded) continue;
    counts_.read_ns += job.took_ns;
    const auto took_ns = static_cast<double>(job.took_ns);
    read_ns_ = read_ns_ == 0.0 ? took_ns : read_ns_ + (took_ns - read_ns_) / 16.0;
  }
}

void KvDisk::wait_for_done() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kMoment, [this] { return !done_.empty(); });
}

void KvDisk::save_all(std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = Clock::now() + patience;
  const auto wait_for_slots = [&](size_t count) {
    while (write_slots_.size() < count && Clock::now() < deadline) {
      advance({}, true);
      wait_for_done();
    }
  };
  int64_t time_ns = ns_since_1970();
  blocks_.each_published([&](BlockId id, const BlockKey& key) {
    wait_for_slots(1);
    keep(id, key, --time_ns);
  });
  wait_for_slots(num_slots_);
}

/// Moves the next blocks of a sequence into its memory. One that could not be read is computed, as is everything behind it.
void KvDisk::take_blocks(Sequence& sequence) {
  const int32_t size = blocks_.block_size();
  while (sequence.num_computed < sequence.read_end * size) {
    const int32_t index = sequence.num_computed / size;
    const auto found = asked_.find(blocks_.key(sequence, index));
    if (found == asked_.end() || found->second == nullptr) break;
    if (!found->second->succeeded) {
      sequence.read_end = 0;
      break;
    }
    copy(*found->second, sequence.blocks[static_cast<size_t>(index)]);
    sequence.num_computed += size;
    sequence.num_scheduled = sequence.num_computed;
    sequence.num_cached_tokens += sequence.num_preemptions == 0 ? size : 0;
    sequence.num_recomputed_tokens = std::max(0, sequence.num_recomputed_tokens - size);
    counts_.hit_tokens += size;
  }
  blocks_.publish(sequence);
  if (sequence.num_computed == sequence.read_end * size) sequence.read_end = 0;
}

}  // namespace minfer
