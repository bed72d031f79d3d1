#include <utility>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/memory_ledger.h"
#include "kernels/cuda/launch/graph_batch.h"

/// Launches steps of the CUDA backend and collects their results.
namespace minfer::cuda {
namespace {

/// One in this many eager steps has the end of each op stamped, which shows the ops' times without idle time.
constexpr uint64_t kStepsBetweenEndStamps = 32;
/// With this many graphs, steps that check drafts or compute prompts get no new ones, since their sizes have two dimensions.
constexpr size_t kMostGraphs = 128;

}  // namespace

LaunchedStep CudaBackend::launch_step(const StepArgs& step, const ForwardPass& forward) {
  if (num_launched_ - num_finished_ >= kOpenSteps) fail("{} steps are launched already", kOpenSteps);
  if (awaiting_rows_) fail("launch_step: the step before it waits for its rows");
  const size_t slot = num_launched_ % kOpenSteps;
  OpenStep& open = steps_[slot];
  open.launch_ns = now_ns();
  open.stamps = step.stamps;
  open.num_rows = static_cast<size_t>(own_rows(step));
  ranges_.begin_step(step.step, step.batch);
  const std::span<const PlacedRow> placed =
      workspace().sampling_tables.bring(Launch(stream_.get(), device_.multiprocessors), step.rows);
  const SampleMode mode = workspace().step.stage(slot, step.batch, step.rows, placed);

  const ForwardBatch& batch = step.batch;
  const LaunchSizes graph = graph_sizes(step);
  const bool has_graph = graph.sequences > 0;
  LaunchSizes sizes{batch.num_tokens, batch.num_sequences, batch.num_logit_rows};
  LaunchedStep launched;
  if (!is_alone() && has_graph) {
    sizes = graph;
    launched.padded_tokens = graph.tokens - batch.num_tokens;
  }
  ForwardEnd forward_end;
  bool stamps_ends = false;
  CapturedStep* captured = nullptr;
  if (step.capture && options_.use_graphs) {
    open.own = capture(step, sizes, mode, forward);
    captured = &open.own;
  } else if (has_graph) {
    const GraphKey key{.sequences = graph.sequences,
                       .tokens = graph.tokens,
                       .logit_rows = graph.logit_rows,
                       .drafts = step.drafts,
                       .prompts = batch.num_decode_sequences == 0,
                       .forward_only = step.later_rows > 0,
                       .greedy_only = mode.greedy_only,
                       .logprobs = mode.logprobs,
                       .stamped = step.stamps != nullptr};
    captured = graph_of(step, key, mode, forward);
    if (captured != nullptr)
      launched = {.padded_tokens = graph.tokens - batch.num_tokens, .graph_batch = graph.sequences};
  }
  if (captured != nullptr) {
    check(cudaGraphLaunch(captured->graph.get(), stream_.get()), "launch of a step's graph");
    open.ops = captured->ops;
    forward_end = captured->forward_end;
  } else {
    stamps_ends = step.stamps != nullptr && (step.stamp_ends || num_eager_++ % kStepsBetweenEndStamps == 0);
    stamping_ends_ = stamps_ends;
    forward_end = enqueue(step, sizes, mode, forward);
    stamping_ends_ = false;
    open.ops.runs.assign(log_.runs().begin(), log_.runs().end());
    open.ops.launches.assign(log_.launches().begin(), log_.launches().end());
  }
  if (step.later_rows > 0) {
    awaiting_rows_ = {step, captured != nullptr ? graph : sizes, forward_end, stamps_ends};
  } else {
    check(cudaEventRecord(open.done.get(), stream_.get()), "launch of a step");
  }
  ++num_launched_;
  ranges_.end_step();
  return launched;
}

void CudaBackend::launch_sampling(std::span<const SamplingRow> rows) {
  if (!awaiting_rows_) fail("launch_sampling: no step waits for its rows");
  const AwaitingRows awaiting = *std::exchange(awaiting_rows_, std::nullopt);
  const StepArgs& step = awaiting.step;
  require_equal("launch_sampling: rows", step.later_rows, std::ssize(rows));
  const size_t slot = (num_launched_ - 1) % kOpenSteps;
  ranges_.begin_step(step.step, step.batch);
  const std::span<const PlacedRow> placed =
      workspace().sampling_tables.bring(Launch(stream_.get(), device_.multiprocessors), rows);
  const SampleMode mode = workspace().step.bring_rows(stream_.get(), slot, rows, placed);
  log_.clear();
  num_stamps_ = awaiting.forward_end.num_stamps;
  num_routed_ = awaiting.forward_end.num_routed;
  stamping_ = step.stamps != nullptr;
  stamping_ends_ = awaiting.stamps_ends;
  enqueue_sampling(step, awaiting.sizes, mode, awaiting.forward_end.logits);
  LaunchedOps& ops = steps_[slot].ops;
  ops.runs.insert(ops.runs.end(), log_.runs().begin(), log_.runs().end());
  ops.launches.insert(ops.launches.end(), log_.launches().begin(), log_.launches().end());
  check(cudaEventRecord(steps_[slot].done.get(), stream_.get()), "launch of a step");
  ranges_.end_step();
}

LaunchSizes CudaBackend::graph_sizes(const StepArgs& step) {
  const ForwardBatch& batch = step.batch;
  const bool draws_alone = batch.num_tokens == batch.num_decode_tokens && batch.num_logit_rows > 0 &&
                           drawn_rows(step) == batch.num_logit_rows;
  if (!options_.use_graphs) return {};
  if (batch.num_decode_sequences == 0) return prompt_graph_sizes(step);
  if (!draws_alone) return {};
  const int32_t sequences = graph_batch(batch.num_decode_sequences, workspace().max_sequences);
  if (batch.num_tokens == batch.num_decode_sequences)
    return batch.num_logit_rows == batch.num_tokens ? LaunchSizes{sequences, sequences, sequences}
                                                    : LaunchSizes{};
  const int32_t tokens =
      is_alone() ? graph_tokens(batch.num_tokens, sequences, workspace().max_draft_tokens) : 0;
  return tokens > 0 ? LaunchSizes{tokens, sequences, tokens} : LaunchSizes{};
}

LaunchSizes CudaBackend::prompt_graph_sizes(const StepArgs& step) {
  const ForwardBatch& batch = step.batch;
  // A prompt draws a token after its last one, or none; scored prompts draw more.
  if (!is_alone() || drawn_rows(step) != batch.num_logit_rows || batch.num_logit_rows > batch.num_sequences)
    return {};
  const int32_t sequences = graph_batch(batch.num_sequences, workspace().max_sequences);
  const int32_t tokens = prompt_graph_tokens(batch.num_tokens, sequences);
  if (tokens == 0 || tokens > workspace().max_tokens) return {};
  return {tokens, sequences, batch.num_logit_rows > 0 ? sequences : 0};
}

CudaBackend::CapturedStep* CudaBackend::graph_of(const StepArgs& step, const GraphKey& key, SampleMode mode,
                                                 const ForwardPass& forward) {
  const bool has_two_sizes = key.tokens > key.sequences;
  if (has_two_sizes && graphs_.size() >= kMostGraphs && !graphs_.contains(key)) return nullptr;
  const auto [entry, is_new] = graphs_.try_emplace(key);
  if (is_new) return nullptr;
  CapturedStep& captured = entry->second;
  if (captured.graph == nullptr) {
    captured = capture(step, {key.tokens, key.sequences, key.logit_rows}, mode, forward);
  }
  return &captured;
}

CudaBackend::CapturedStep CudaBackend::capture(const StepArgs& step, const LaunchSizes& sizes,
                                               SampleMode mode, const ForwardPass& forward) {
  check(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeRelaxed), "capturing a step");
  cudaGraph_t raw_graph = nullptr;
  capturing_ = true;
  ForwardEnd forward_end;
  try {
    forward_end = enqueue(step, sizes, mode, forward);
    capturing_ = false;
  } catch (...) {
    capturing_ = false;
    cudaStreamEndCapture(stream_.get(), &raw_graph);
    if (raw_graph != nullptr) cudaGraphDestroy(raw_graph);
    throw;
  }
  check(cudaStreamEndCapture(stream_.get(), &raw_graph), "capturing a step");
  const Graph graph(raw_graph);
  const int64_t free_before = free_and_total_bytes().first;
  cudaGraphExec_t raw_executable = nullptr;
  check(cudaGraphInstantiate(&raw_executable, graph.get(), 0), "instantiating a step's graph");
  GraphExec executable(raw_executable);
  check(cudaGraphUpload(executable.get(), stream_.get()), "instantiating a step's graph");
  MemoryLedger::of_process().grow(free_before - free_and_total_bytes().first, "graphs");
  CapturedStep captured{std::move(executable), {log_.runs(), log_.launches()}, forward_end};
  for (LaunchLog::OpRun& run : captured.ops.runs)
    run.launched_ns = 0;  // not the time of the capture
  return captured;
}

CudaBackend::ForwardEnd CudaBackend::enqueue(const StepArgs& step, const LaunchSizes& sizes, SampleMode mode,
                                             const ForwardPass& forward) {
  Workspace& work = workspace();
  log_.clear();
  num_stamps_ = 0;
  num_routed_ = 0;
  routed_layer_ = -1;
  stamping_ = step.stamps != nullptr;
  const ForwardBatch batch = work.step.device_batch(step.batch, sizes);
  run_op(step.inputs_op, [&](Launch& launch) {
    work.step.launch_inputs(launch, sizes);
    if (batch.num_decode_sequences > 0) work.attention.plan(launch, batch);
  });
  const Tensor logits = forward(batch);
  if (step.later_rows > 0) {
    stamp_end();
    stamping_ = false;
  } else {
    enqueue_sampling(step, sizes, mode, logits);
  }
  return {logits, num_stamps_, num_routed_};
}

/// Stamps the end of the last op: the device may wait before the next launch.
void CudaBackend::stamp_end() {
  if (!stamping_ || log_.runs().empty() || log_.runs().back().end_stamp >= 0) return;
  const int32_t end = num_stamps_++;
  Launch launch(stream_.get(), device_.multiprocessors, {{}, workspace().step.stamp(end)}, &log_);
  stamp_only(launch);
  log_.runs().back().end_stamp = end;
}

void CudaBackend::enqueue_sampling(const StepArgs& step, const LaunchSizes& sizes, SampleMode mode,
                                   Tensor logits) {
  Workspace& work = workspace();
  const ForwardBatch batch = work.step.device_batch(step.batch, sizes);
  const int32_t num_rows = drawn_rows(step) == 0 ? 0 : sizes.logit_rows;
  for (int32_t first = 0; first < num_rows; first += static_cast<int32_t>(logits.rows)) {
    if (first > 0) logits = step.more_logits(batch, first);
    if (logits.rows < 1) fail("launch_step: no logits for row {} of {}", first, num_rows);
    if (!options_.rank.is_first()) continue;  // this rank only contributes logits; the first rank draws
    run_op(step.sample_op, [&](Launch& launch) {
      work.sample.sample(launch, logits, first, mode, work.step.sampling(), work.sampling_tables.view(),
                         work.step.previous_tokens(), work.step.tokens(), work.step.results());
    });
  }
  if (step.share_op >= 0 && num_rows > 0)
    run_op(step.share_op,
           [&](Launch& launch) { ranks().share_tokens(launch, work.step.tokens(), num_rows); });
  stamping_ends_ = false;  // the step's own end is the end of its last op
  run_op(step.results_op, [&](Launch& launch) {
    work.step.launch_results(launch, num_stamps_, own_rows(step) == 0 ? 0 : sizes.logit_rows, num_routed_);
  });
  stamping_ = false;
}

void CudaBackend::finish_step(std::span<SampledToken> out) {
  if (num_finished_ + (awaiting_rows_ ? 1 : 0) == num_launched_) fail("no step is launched to its end");
  const size_t slot = num_finished_ % kOpenSteps;
  OpenStep& open = steps_[slot];
  if (out.size() != open.num_rows) fail("the step drew {} tokens, not {}", open.num_rows, out.size());
  if (is_alone()) {
    check(cudaEventSynchronize(open.done.get()), "a step");
  } else {
    wait_with_ranks([&open] { return cudaEventQuery(open.done.get()); }, "a step");
  }
  const int64_t waited_until_ns = now_ns();
  ++num_finished_;
  const StepMemory& memory = workspace().step;
  if (open.num_rows > 0) SampleOps::unpack(memory.host_results(slot), out);
  if (open.stamps == nullptr) return;
  open.stamps->waited_until_ns = waited_until_ns;
  clock_.observe(open.launch_ns, memory.stamp_ns(slot, 0), memory.end_ns(slot), waited_until_ns);
  read_stamps(open, slot);
}

void CudaBackend::read_stamps(const OpenStep& step, size_t slot) {
  const StepMemory& memory = workspace().step;
  const auto host_ns = [&](int32_t stamp) { return clock_.host_ns(memory.stamp_ns(slot, stamp)); };
  for (const LaunchLog::OpRun& run : step.ops.runs) {
    step.stamps->add(
        {.op = run.op,
         .begin_ns = run.begin_stamp < 0 ? 0 : host_ns(run.begin_stamp),
         .launched_ns = run.launched_ns,
         .end_ns = run.end_stamp < 0 ? 0 : host_ns(run.end_stamp),
         .num_launches = run.num_launches,
         .experts_read = run.routed_layer < 0 ? -1 : memory.experts_chosen(slot, run.routed_layer)});
    StepStamps::Stamp& stamp = step.stamps->ops.back();
    if (run.arrival_stamp >= 0)
      stamp.waited_ns = StepStamps::waited(host_ns(run.arrival_stamp) - stamp.begin_ns);
  }
  step.stamps->launches.assign(step.ops.launches.begin(), step.ops.launches.end());
  step.stamps->end_ns = clock_.host_ns(memory.end_ns(slot));
  step.stamps->clock_offset_ns = clock_.host_ns(0);
}

}  // namespace minfer::cuda
