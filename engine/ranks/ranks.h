#pragma once

#include <memory>
#include <vector>

#include "engine/ranks/step_message.h"
#include "kernels/backend.h"
#include "models/decoder/weights/model_source.h"
#include "profiling/counters/rank_counters.h"
#include "profiling/record/rank_step.h"
#include "profiling/trace/range_trace.h"

namespace minfer {

/// The ranks that a model runs on, as seen by the first rank, which leads the others: threads of this
/// process or other processes. Used from one thread. All functions throw DeviceError once a rank has failed.
class Ranks {
 public:
  virtual ~Ranks() = default;

  /// The first rank's share of the model.
  virtual ModelSource& share() = 0;
  /// Makes the first rank's backend; call it once. It may wait for the others'.
  virtual std::unique_ptr<Backend> make_backend() = 0;

  /// The least of all ranks' values; waits for them.
  int64_t least(int64_t value) { return channel().least(value); }
  /// Says that the first rank is ready to lead; the others are ready too.
  void begin() {
    least(0);
    has_begun_ = true;
  }
  /// Orders the others to launch the same step, which the first rank launches after this call.
  void launch(const StepArgs& step) {
    ++open_steps_;
    channel().send(orders_.launch(step));
  }
  /// Orders the others to finish their oldest step, when the first rank has finished it.
  void finish() {
    --open_steps_;
    channel().send(orders_.plain(RankOrder::finish));
    check();
  }
  /// Takes the times of recorded steps on the others, as far as they have reported since the last call. Does not wait for them.
  virtual void take_steps(std::vector<RankStep>& steps) = 0;
  /// Makes the others report to `tracer` the steps launched from now on, if they are in this process. Call it when no step is under way.
  void begin_trace(DeviceTracer& tracer) {
    use_tracer(&tracer);
    orders_.set_traced(true);
  }
  /// Returns what the others recorded since begin_trace(); waits for them. `tracer` still traces. Call it when no step is under way.
  std::vector<RankTrace> end_trace() {
    orders_.set_traced(false);
    channel().send(orders_.plain(RankOrder::meet));
    least(0);
    use_tracer(nullptr);
    return take_traces();
  }
  /// The readers of the hardware counters of the others' devices, or the reason for none where a
  /// device has counters. Call it once they have begun; the samplers live as long as the ranks.
  virtual std::vector<RankCounters> counters() const { return {}; }
  /// Tells `sink`, in place of an earlier one, what recorded steps stamp on those other ranks
  /// that are in this process; null: nobody. When this returns, the earlier sink is told no more.
  virtual void watch_stamps(RankStampSink* /*sink*/) {}
  /// Throws if a rank has failed.
  virtual void check() = 0;

 protected:
  virtual RankChannel& channel() = 0;
  virtual void use_tracer(DeviceTracer* /*tracer*/) {}
  virtual std::vector<RankTrace> take_traces() { return {}; }
  /// True between two steps, when the others can be ordered to end.
  bool is_between_steps() const { return has_begun_ && open_steps_ == 0; }
  void order_end() { channel().send(orders_.plain(RankOrder::end)); }

 private:
  RankOrders orders_;
  bool has_begun_ = false;
  int32_t open_steps_ = 0;  ///< launched and not finished by the first rank
};

/// Makes several ranks in this process. The first rank's model is used on the caller's thread. Each other rank runs on a
/// thread of its own and does the same steps. Makes the first rank's share and starts the others, which load theirs at the
/// same time. Throws Error if the model cannot be divided so, or the machine has too few devices. `source` outlives the ranks.
std::unique_ptr<Ranks> make_thread_ranks(const ModelSource& source, const EngineOptions& options,
                                         int32_t logit_slice);

/// Makes ranks that are processes, which a launcher started; this process is the first. `options` name
/// the processes. Throws Error if the model cannot be divided among them. `source` outlives the ranks.
std::unique_ptr<Ranks> make_process_ranks(const ModelSource& source, const EngineOptions& options);

/// Sets the number of ranks to the number of processes. Throws Error if another number is asked for.
void choose_for_processes(EngineOptions& options);

/// Thrown instead of an Error when a process of another rank than the first has done all that it was started for.
struct FollowedToEnd {};

/// Runs such a process: follow() with its share of `source`, then throws
/// FollowedToEnd. If follow() throws, tells the other processes and rethrows.
[[noreturn]] void follow_first_process(const ModelSource& source, const EngineOptions& options,
                                       int32_t logit_slice);

}  // namespace minfer
