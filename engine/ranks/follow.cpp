#include "engine/ranks/follow.h"

#include <utility>

#include "engine/ranks/rank_model.h"
#include "engine/ranks/sizes.h"
#include "engine/ranks/step_message.h"

namespace minfer {

void follow(const ModelSource& share, const EngineOptions& options, int32_t logit_slice,
            std::unique_ptr<Backend> backend, RankChannel& channel) {
  EngineOptions chosen = options;
  choose_for_backend(chosen, backend->info());
  RankModel model(share, chosen, logit_slice, {}, std::move(backend));
  choose_kv_blocks(chosen, share.config(), channel.least(model.most_kv_blocks()));
  model.make_decoder(chosen);
  channel.least(0);  // all are ready
  RankSteps steps(chosen);
  for (;;) {
    const std::span<const std::byte> order = channel.receive();
    switch (order_of(order)) {
      case RankOrder::launch: {
        const StepArgs step = steps.read(order);
        if (options.on_rank_step) options.on_rank_step(channel.rank(), step.step);
        model.launch(step);
        break;
      }
      case RankOrder::finish:
        model.backend().finish_step({});
        break;
      case RankOrder::end:
        return;
    }
  }
}

}  // namespace minfer
