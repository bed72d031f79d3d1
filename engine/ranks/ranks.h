#pragma once

#include <memory>
#include <vector>

#include "engine/ranks/rank_channel.h"
#include "engine/ranks/step_message.h"
#include "kernels/backend.h"
#include "models/decoder/weights/model_source.h"
#include "profiling/counters/rank_counters.h"
#include "profiling/record/rank_stamps.h"
#include "profiling/record/rank_step.h"
#include "profiling/trace/range_trace.h"

namespace minfer {

/// The ranks that a model runs on, as the first one sees them, which leads the others: threads of this process or other processes.
/// Used from one thread. All functions throw DeviceError once a rank has failed.
class Ranks {
 public:
  virtual ~Ranks() = default;

  /// The first rank's share of the model.
  virtual ModelSource& share() = 0;
  /// The first rank's backend; once. It may wait for the others'.
  virtual std::unique_ptr<Backend> make_backend() = 0;

  /// The least of all ranks' values; waits for them.
  int64_t least(int64_t value) { return channel().least(value); }
  /// The first rank is ready to lead, as the others are.
  void begin();
  /// Has the others launch the same step, which the first one launches behind this.
  void launch(const StepArgs& step);
  /// Has them finish their oldest step, when the first one has.
  void finish();
  /// What recorded steps took on the others, as far as they have told since the last call. Does not wait for them.
  virtual void take_steps(std::vector<RankStep>& steps) = 0;
  /// Has the others tell `tracer` of the steps that are launched from now on, where they are in this process. No step is under way.
  void begin_trace(DeviceTracer& tracer);
  /// What the others recorded since then; waits for them. `tracer` still traces. No step is under way.
  std::vector<RankTrace> end_trace();
  /// What reads the hardware counters of the others' devices, or why nothing does where a device has some. Once they have begun; the
  /// samplers live as long as the ranks.
  virtual std::vector<RankCounters> counters() const { return {}; }
  /// Has `sink` told, instead of an earlier one, what recorded steps stamp on those of the others that are in this process; null:
  /// nobody. When this returns the earlier one is told no more.
  virtual void watch_stamps(RankStampSink* /*sink*/) {}
  /// Throws if one has failed.
  virtual void check() = 0;

 protected:
  virtual RankChannel& channel() = 0;
  virtual void use_tracer(DeviceTracer* /*tracer*/) {}
  virtual std::vector<RankTrace> take_traces() { return {}; }
  /// Between two steps, so that the others can be ordered to end.
  bool is_between_steps() const { return has_begun_ && open_steps_ == 0; }
  void order_end() { channel().send(orders_.plain(RankOrder::end)); }

 private:
  RankOrders orders_;
  bool has_begun_ = false;
  int32_t open_steps_ = 0;  ///< launched and not finished by the first rank
};

/// Several ranks in this process. The first one's model is used on the caller's thread; each of the others runs on a thread of its
/// own, where it does what the first one does. Makes the first rank's share and starts the others, which load theirs at the same time.
/// Throws Error if the model cannot be divided so, or the machine has too few devices. `source` outlives the ranks.
std::unique_ptr<Ranks> make_thread_ranks(const ModelSource& source, const EngineOptions& options,
                                         int32_t logit_slice);

}  // namespace minfer
