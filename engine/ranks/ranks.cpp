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

void Ranks::begin_trace(DeviceTracer& tracer) {
  use_tracer(&tracer);
  orders_.set_traced(true);
}

std::vector<RankTrace> Ranks::end_trace() {
  orders_.set_traced(false);
  channel().send(orders_.plain(RankOrder::meet));
  least(0);
  use_tracer(nullptr);
  return take_traces();
}

}  // namespace minfer
