#include "engine/ranks/follow.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/options/sizes.h"
#include "engine/ranks/rank_model.h"
#include "engine/ranks/step_message.h"
#include "kernels/comm/process_group.h"
#include "profiling/record/recorder.h"

namespace minfer {
namespace {

constexpr size_t kMostOpenSteps = StepRecorder::kMostOpenSteps;

/// A step under way.
struct RecordedStep {
  int64_t step = -1;
  bool is_stamped = false;
  bool is_traced = false;
  RankStepMaker::Host host;
  StepStamps stamps;
};

}  // namespace

void follow(ModelSource& share, const EngineOptions& options, int32_t logit_slice,
            std::unique_ptr<Backend> backend, RankChannel& channel, const RankRecords& records) {
  EngineOptions chosen = options;
  choose_for_backend(chosen, share.config(), backend->info());
  RankModel model(share, chosen, logit_slice, {}, std::move(backend));
  if (model.backend().info().copies_weights) share.release_data();
  model.complete(chosen, [&channel](int64_t value) { return channel.least(value); });
  if (records.on_ready) records.on_ready(model.decoder().ops());
  channel.least(0);  // all are ready
  RankSteps steps(chosen);
  RankStepMaker maker(channel.rank());
  const bool has_other_clock =
      options.processes && options.processes->host_of(0) != options.processes->host_of(channel.rank().index);
  OrderClock clock;
  std::array<RecordedStep, kMostOpenSteps> open;
  uint64_t launched = 0, finished = 0;
  const int32_t rank = channel.rank().index;
  RankTrace trace{.rank = rank, .steps = {}, .launches = {}};
  for (;;) {
    const std::span<const std::byte> order = channel.receive();
    const int64_t received_ns = now_ns();
    switch (order_of(order)) {
      case RankOrder::launch: {
        const LaunchOrder launch = steps.read(order);
        StepArgs step = launch.step;
        RecordedStep& record = open[launched++ % kMostOpenSteps];
        record.step = step.step;
        record.stamps.clear();
        record.is_stamped = launch.is_stamped;
        if (record.is_stamped) step.stamps = &record.stamps;
        if (options.on_rank_step) options.on_rank_step(channel.rank(), step.step);
        DeviceTracer* const tracer = launch.is_traced && records.tracer ? records.tracer() : nullptr;
        record.is_traced = tracer != nullptr;
        if (tracer != nullptr) tracer->begin_launch(step.step, rank);
        model.launch(step);
        if (tracer != nullptr) tracer->end_launch(rank);
        if (has_other_clock) clock.add(launch.sent_ns, received_ns);
        record.host = {.launch_ns = now_ns() - received_ns,
                       .has_before = step.batch.num_decode_sequences > 0};
        break;
      }
      case RankOrder::finish: {
        model.backend().finish_step({});
        RecordedStep& record = open[finished++ % kMostOpenSteps];
        if (record.is_stamped && records.on_stamps) records.on_stamps(record.step, record.stamps);
        if (!record.is_stamped || !records.on_step) break;
        if (record.is_traced)
          trace.steps.push_back({.step = record.step, .shape = {}, .stamps = record.stamps});
        record.host.finish_ns = now_ns() - std::max(received_ns, record.stamps.waited_until_ns);
        RankStep step = maker.make(record.step, record.stamps, model.decoder().ops(), record.host);
        step.begin_ns -= clock.ahead_ns();
        step.end_ns -= clock.ahead_ns();
        records.on_step(step);
        break;
      }
      case RankOrder::meet:
        if (!trace.steps.empty() && records.on_trace) {
          if (const LaunchTable* table = model.backend().launches()) trace.launches = table->from(0);
          records.on_trace(std::exchange(trace, {.rank = rank, .steps = {}, .launches = {}}));
        }
        channel.least(0);
        break;
      case RankOrder::end:
        return;
    }
  }
}

}  // namespace minfer
