#include "engine/ranks/ranks.h"

namespace minfer {

void Ranks::begin() {
  least(0);
  has_begun_ = true;
}

void Ranks::launch(const StepArgs& step) {
  ++open_steps_;
  channel().send(orders_.launch(step));
}

void Ranks::finish() {
  --open_steps_;
  channel().send(orders_.plain(RankOrder::finish));
  check();
}

}  // namespace minfer
