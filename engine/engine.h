#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/batch_builder.h"
#include "engine/model_runner.h"
#include "engine/output_assembler.h"
#include "engine/request.h"
#include "engine/sampling_state.h"
#include "engine/scheduler.h"
#include "models/tokenizer.h"
#include "profiling/recorder.h"

namespace minfer {

/// A request while it lives: its sequence, how its tokens are drawn and how they become responses.
struct LiveRequest : Sequence {
  LiveRequest(const Request& request, const Tokenizer& tokenizer, uint64_t seed, int32_t stream_interval);
  bool ends_with(TokenId token) const;

  std::vector<TokenId>
      ending_tokens;  ///< the vocabulary's end tokens (unless ignored) and the request's stop tokens
  SamplingState sampling;
  OutputAssembler output;
  std::string refusal;  ///< why it was refused, for people
};

/// The inference engine: requests in, tokens out, one step at a time.
///
///     Engine engine(open_model("model.gguf"), {});
///     engine.submit({.id = "1", .prompt = engine.tokenizer().encode("Once upon a time")});
///     while (engine.has_work())
///       for (const RequestOutput& output : engine.step()) std::cout << output.text;
///
/// Used from one thread; the tokeniser from any. Every step is recorded by recorder(), from the first one on.
class Engine {
 public:
  /// Loads the model, which the engine then owns. Throws FileError for a bad file, Error for options that
  /// cannot be met.
  explicit Engine(std::unique_ptr<ModelSource> model, const EngineOptions& options = {},
                  const LoadProgress& progress = {});

  /// Takes a request into the queue. Throws Error if a parameter is out of range, a prompt token is not in
  /// the vocabulary or the id is in use. A request that can never run (too long, say) is answered as refused
  /// by the next step.
  void submit(const Request& request);
  /// Ends a request in any state and frees its blocks at once; the next step answers it as cancelled. Unknown
  /// ids: ignored.
  void cancel(std::string_view id);
  bool has_work() const { return scheduler_.has_work() || !ended_.empty(); }

  /// Schedules, builds, runs, samples and commits one step. What there is to send for it, valid until the
  /// next call.
  std::span<const RequestOutput> step();

  const ModelConfig& config() const { return model_->config(); }
  const ModelSource& model() const { return *model_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const EngineOptions& options() const { return runner_.options(); }  ///< with all sizes chosen
  const ModelRunner& runner() const { return runner_; }
  BackendInfo backend_info() { return runner_.backend().info(); }
  const Scheduler& scheduler() const { return scheduler_; }
  StepRecorder& recorder() { return recorder_; }
  std::span<const OpInfo> ops() const { return runner_.decoder().ops(); }

 private:
  const ScheduledBatch& schedule();
  const HostBatch& build(const ScheduledBatch& scheduled);
  void run(const HostBatch& batch);
  void commit(const ScheduledBatch& scheduled);
  void assemble_outputs(const ScheduledBatch& scheduled);
  void answer_ended();
  void emit(LiveRequest& request);
  StepBatch describe(const ScheduledBatch& scheduled, const HostBatch& batch) const;

  std::unique_ptr<ModelSource> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  ModelRunner runner_;
  BlockManager blocks_;
  Scheduler scheduler_;
  BatchBuilder builder_;
  StepRecorder recorder_;

  std::unordered_map<std::string, std::unique_ptr<LiveRequest>> requests_;
  std::vector<LiveRequest*> ended_;  ///< refused or cancelled outside a step: answered by the next one
  std::vector<SamplingRow> sampling_rows_;
  std::vector<SampledToken> sampled_;
  std::vector<RequestOutput> outputs_;
  uint64_t num_submitted_ = 0;
};

}  // namespace minfer
