#pragma once

#include "profiling/counters/counter_window.h"

namespace minfer::test {

/// A window with every field that a line can hold.
inline CounterWindow sample_counters() {
  CounterWindow window;
  window.begin_ns = 81'234'567'890'123;
  window.us = 10'240.5;
  window.interval_ns = 1'000;
  window.clock = SampleClock::fitted;
  window.clock_shift_ns = -137;
  window.samples = 10'240;
  window.lost = 3;
  window.counters = {Counter::dram_read_bytes, Counter::dram_written_bytes, Counter::sm_active,
                     Counter::l2_hit};
  window.left_out = {{Counter::nvlink_sent_bytes, "nvltx__bytes.sum: \"no\" link"}};
  window.start_ms = 1.25;
  window.stop_ms = 2.5;
  window.drain_ms = 480.125;
  window.attribution_ms = 17.0;

  CounterStep step{.step = 12, .us = 3'650.25, .covered = 0.99875, .measured = {}};
  step.measured[Counter::dram_read_bytes] = 16'060'522'496.5;
  step.measured[Counter::dram_written_bytes] = 8'388'608.0;
  step.counted_read_bytes = 16'060'000'000;
  step.counted_written_bytes = 8'000'000;
  window.steps = {step};

  CounterOp op{.op = "gate_up_swiglu",
               .phase = StepPhase::decode,
               .calls = 32,
               .samples = 2'981,
               .us = 1'490.125,
               .measured = {}};
  op.measured[Counter::dram_read_bytes] = 3'758'096'384.5;
  op.measured[Counter::sm_active] = 0.96875;
  op.measured[Counter::l2_hit] = 0.015;
  op.read_error_bytes = 1'024.5;
  op.counted_read_bytes = 3'758'000'000.5;
  CounterOp unknown{.op = "sample", .phase = StepPhase::mixed, .calls = 1, .us = 2.0, .measured = {}};
  window.work = {{.phase = StepPhase::decode, .graph_batch = 32, .steps = 2, .replays = 21, .ops = {op}},
                 {.phase = StepPhase::mixed, .graph_batch = 0, .steps = 1, .replays = 1, .ops = {unknown}}};
  return window;
}

}  // namespace minfer::test
