#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/disk/kv_disk.h"
#include "engine/memory/kv_events.h"
#include "engine/model_runner.h"
#include "engine/profile_range.h"
#include "engine/request/grammar_rows.h"
#include "engine/request/live_request.h"
#include "engine/scheduling/batch_builder.h"
#include "engine/scheduling/scheduler.h"
#include "engine/speculation/draft_model.h"
#include "engine/speculation/speculator.h"
#include "models/tokenizer/tokenizer.h"
#include "profiling/host/sampler.h"
#include "profiling/record/recorder.h"

namespace minfer {

/// The inference engine: requests in, tokens out, one step at a time.
///
///     Engine engine(open_model("model.gguf"), {});
///     engine.submit({.id = "1", .prompt = engine.tokenizer().encode("Once upon a time")});
///     while (engine.has_work())
///       for (const RequestOutput& output : engine.step()) std::cout << output.text;
///
/// Used from one thread, except that any thread may use the tokeniser. recorder() records every step, from the first one on.
class Engine {
 public:
  /// Loads the model, which the engine then owns. `backend` null: the engine makes the backend that
  /// options and model ask for. Throws FileError for a bad file, Error for options that cannot be met.
  explicit Engine(std::unique_ptr<ModelSource> model, const EngineOptions& options = {},
                  const LoadProgress& progress = {}, std::unique_ptr<Backend> backend = nullptr);

  /// Takes a request into the queue. Throws Error if a parameter is out of range, a prompt token is not in the vocabulary, the id is in use
  /// or the grammar cannot be honoured. A request that can never run (too long, say) is answered as refused by the next step.
  void submit(const Request& request);
  /// Ends a request in any state and frees its blocks at once;
  /// the next step answers it as cancelled. Ignores unknown ids.
  void cancel(std::string_view id);
  bool has_work() const {
    return scheduler_.has_work() || !ended_.empty() || num_open_steps_ > 0 || !grammar_rows_.empty();
  }

  /// Launches the next step (schedule, build, run), then finishes the oldest one (wait, commit): the step just launched, or with
  /// options().steps_ahead the step before it. If a step's rows depend on the step before, its tokens are drawn when the latter is
  /// committed. Where a profiled range begins or ends, it only finishes a step. Returns the outputs, valid until the next call.
  std::span<const RequestOutput> step();
  /// Throws DeviceError if another rank has failed. For a caller without a step to take: step() would find that out.
  void check_ranks() {
    if (Ranks* const ranks = runner_.ranks()) ranks->check();
  }
  /// Calls `sink` with the outputs of each step, inside the step, so that its time is recorded
  /// as the step's `respond` span. `sink` may move from the outputs. Between steps only.
  void set_output_sink(std::function<void(std::span<RequestOutput>)> sink) { sink_ = std::move(sink); }

  /// Tells `sink` the changes of the prefix cache at the end of each step. `sink` outlives the engine. Call once, between steps.
  void set_kv_event_sink(KvEventSink& sink) { kv_events_.emplace(blocks_, sink); }

  /// Writes the blocks in memory to options().kv_disk, if that is set, the most recently used first, until `patience` is over. Between two
  /// steps, or behind the last one.
  void save_kv_cache(std::chrono::milliseconds patience) {
    if (kv_disk_) kv_disk_->save_all(patience);
  }
  /// Null: no blocks are kept on disk.
  const DiskCounts* disk_counts() const { return kv_disk_ ? &kv_disk_->counts() : nullptr; }

  /// Profiles a range of the steps to come, kernel by kernel where the backend can. Call it,
  /// end_profile_range() and cut_profile_range() between steps. Throws Error if a range is set already.
  void set_profile_range(ProfileRange::Options options) { range_.set(std::move(options)); }
  bool has_profile_range() const { return range_.is_set(); }
  /// Ends the range after the steps that are under way: at once if there are none, else when they have finished.
  void end_profile_range();
  /// Ends the range here, without the steps that are under way. For a caller that will not call step() again.
  void cut_profile_range() noexcept;
  /// The number of the next step to be launched.
  int64_t next_step() const { return recorder_.next_step(); }

  const ModelConfig& config() const { return model_->config(); }
  const ModelSource& model() const { return *model_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const EngineOptions& options() const { return runner_.options(); }  ///< with all sizes chosen
  const ModelRunner& runner() const { return runner_; }
  BackendInfo backend_info() { return runner_.backend().info(); }
  /// The readers of the hardware counters of each rank's device, the first rank's in front. The samplers live as long as the engine.
  std::vector<RankCounters> counters();
  /// Tells `sink` what recorded steps stamp on the other ranks of this process; null: nobody. See Ranks::watch_stamps(). Between steps.
  void watch_rank_stamps(RankStampSink* sink);
  const Scheduler& scheduler() const { return scheduler_; }
  StepRecorder& recorder() { return recorder_; }
  /// Samples what the machine does to the engine's threads. The first call starts
  /// both samplers and must come between steps; later calls may come from any thread.
  HostSampler& host_sampler();
  /// The sampler of this process's GPUs; null: there are no GPUs, or nothing reads them.
  DeviceSampler* device_sampler() {
    host_sampler();
    return device_sampler_.get();
  }
  std::span<const OpInfo> ops() const { return runner_.decoder().ops(); }
  /// True if a profiled range is traced kernel by kernel, as far as is known before it begins.
  bool can_trace() { return runner_.backend().tracer() != nullptr; }
  /// See Backend::memory_use().
  MemoryUse memory_use() { return runner_.backend().memory_use(); }
  /// See Backend::launches().
  const LaunchTable* launches() { return runner_.backend().launches(); }

 private:
  /// A launched step: the work that it computes, until it is committed.
  struct OpenStep {
    int64_t begin_ns = 0;  ///< when it began to be scheduled
    ScheduledBatch scheduled;
    std::vector<SamplingRow> rows;
    std::vector<SampledToken> sampled;  ///< one a row, filled when the step finishes
    int64_t num_copies = 0;             ///< copies of KvDisk in front of it
    bool draws_later = false;  ///< its rows are not known before the step in front of it is committed
    /// Requests that ended while the step was under way: kept until no step names them.
    std::vector<std::unique_ptr<LiveRequest>> ended;
  };

  void check_grammar(const TokenGrammar& grammar);
  bool launch_step();
  void finish_step();
  DeviceReader make_device_reader();
  RankStep first_rank_step(const StepRecord& record, int64_t finished_ns);
  void choose_who_waits();
  bool schedule(OpenStep& step);
  const HostBatch& build(OpenStep& step);
  bool needs_later_rows(const ScheduledBatch& scheduled) const;
  void add_rows(OpenStep& step) const;
  void add_drawn_rows(const ScheduledSequence& entry, std::vector<SamplingRow>& rows) const;
  void run(OpenStep& step, const HostBatch& batch);
  void launch_later_rows();
  void commit(OpenStep& step);
  void commit(const ScheduledSequence& entry, std::span<SampledToken> rows, int64_t time_ns);
  void count_drafts(LiveRequest& request, int32_t num_drafts);
  void end_with_error(LiveRequest& request);
  void finish_with_error(LiveRequest& request);
  void take_scores(LiveRequest& request, int32_t first_row, std::span<SampledToken> scored);
  void end_when_scored(LiveRequest& request, FinishReason reason);
  void follow_grammars();
  void follow_grammar(LiveRequest& request, const Constraint::Advance& next);
  void assemble_outputs(OpenStep& step);
  bool assemble_rows(LiveRequest& request, std::span<SampledToken> rows);
  void assemble_forced(LiveRequest& request);
  void count_forced(LiveRequest& request, int32_t num_tokens);
  void answer_ended();
  void respond();
  void emit(LiveRequest& request);
  void record_end(const LiveRequest& request);
  void retire(const std::string& id);
  StepBatch describe(const ScheduledBatch& scheduled, const HostBatch& batch);

  std::unique_ptr<ModelSource> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<DraftModel> draft_model_;  ///< while the engine is made; then the speculator owns it
  ModelRunner runner_;
  const uint64_t prefix_hash_key_;
  const bool takes_masks_;
  BlockManager blocks_;
  std::optional<KvEventFeed> kv_events_;
  StepCost step_cost_;
  const std::optional<PrefillBudget> prefill_budget_;  ///< absent: options().target_itl_ms is 0
  Scheduler scheduler_;
  std::optional<KvDisk> kv_disk_;
  DiskCounts told_disk_counts_;  ///< in the records of steps so far
  BatchBuilder builder_;
  std::unique_ptr<Speculator> speculator_;  ///< null: no sequence brings drafts
  StepRecorder recorder_;
  std::unique_ptr<HostSampler> host_sampler_;  ///< null: host_sampler() was not called yet
  std::unique_ptr<DeviceSampler> device_sampler_;
  RankStepMaker rank_step_maker_;
  ProfileRange range_;

  std::unordered_map<std::string, std::unique_ptr<LiveRequest>> requests_;
  std::vector<LiveRequest*>
      ended_;  ///< to be answered: refused or cancelled since the last step, or failed in it
  std::vector<OpenStep> steps_;  ///< a ring: launched steps, oldest first, from steps_[oldest_step_] on
  size_t oldest_step_ = 0;
  size_t num_open_steps_ = 0;
  std::vector<TokenId> standing_;  ///< reused: tokens of the sequence being committed
  GrammarRows grammar_rows_;  ///< of the step being committed, and rows that need more time than a step has
  int32_t num_constrained_ = 0;  ///< requests that have grammars
  std::vector<RequestOutput> outputs_;
  std::function<void(std::span<RequestOutput>)> sink_;
  uint64_t num_submitted_ = 0;
  EndedRequest ended_record_;  ///< reused
};

}  // namespace minfer
