#pragma once

#include "profiling/json/line_members.h"

namespace minfer {

inline constexpr auto kStepPhase = one_name_of(StepPhase::prefill, StepPhase::decode, StepPhase::mixed);

/// The graph of a step; left out if the step has none.
template <class Json>
void graph_member(Json& json, StepPhase phase, auto& sequences) {
  if constexpr (Json::kReads) {
    const auto graph = json.field().find("graph");
    sequences = graph ? sequences_of_graph(graph->text()) : 0;
    if (graph && sequences == 0) graph->expected("decode_bN or prefill_bN");
  } else if (sequences > 0) {
    json.told("graph", graph_name(phase, sequences));
  }
}

}  // namespace minfer
