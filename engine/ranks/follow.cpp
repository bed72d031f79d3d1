#include "engine/ranks/follow.h"

#include <array>
#include <utility>

#include "engine/ranks/rank_model.h"
#include "engine/ranks/sizes.h"
#include "engine/ranks/step_message.h"
#include "profiling/record/recorder.h"

namespace minfer {
namespace {

constexpr size_t kMostOpenSteps = StepRecorder::kMostOpenSteps;

/// A step under way.
struct RecordedStep {
  int64_t step = -1;
  bool is_stamped = false;
  StepStamps stamps;
};

}  // namespace

void follow(const ModelSource& share, const EngineOptions& options, int32_t logit_slice,
            std::unique_ptr<Backend> backend, RankChannel& channel, const OnRankStep& on_step) {
  EngineOptions chosen = options;
  choose_for_backend(chosen, backend->info());
  RankModel model(share, chosen, logit_slice, {}, std::move(backend));
  choose_kv_blocks(chosen, share.config(), channel.least(model.most_kv_blocks()));
  model.make_decoder(chosen);
  channel.least(0);  // all are ready
  RankSteps steps(chosen);
  std::array<RecordedStep, kMostOpenSteps> open;
  uint64_t launched = 0, finished = 0;
  for (;;) {
    const std::span<const std::byte> order = channel.receive();
    switch (order_of(order)) {
      case RankOrder::launch: {
        StepArgs step = steps.read(order);
        RecordedStep& record = open[launched++ % kMostOpenSteps];
        record.step = step.step;
        record.stamps.clear();
        record.is_stamped = is_stamped(order);
        if (record.is_stamped) step.stamps = &record.stamps;
        if (options.on_rank_step) options.on_rank_step(channel.rank(), step.step);
        model.launch(step);
        break;
      }
      case RankOrder::finish:
        model.backend().finish_step({});
        if (const RecordedStep& record = open[finished++ % kMostOpenSteps]; record.is_stamped && on_step)
          on_step(rank_step_of(record.step, channel.rank(), record.stamps, model.decoder().ops()));
        break;
      case RankOrder::end:
        return;
    }
  }
}

}  // namespace minfer
