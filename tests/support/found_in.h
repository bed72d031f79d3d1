#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "profiling/findings/rules.h"

/// Synthetic records of an even run on a GPU, and the findings of the rules for them.
namespace minfer::test {

inline OpInfo found_op(const char* op, OpKind kind) {
  OpInfo info;
  info.name = op;
  info.layer = 0;
  info.kind = kind;
  return info;
}

inline ProfileHeader device_header() {
  ProfileHeader header;
  header.backend = "cuda";
  header.threads = 1;
  header.activation_dtype = DType::bf16;
  header.ceilings = {.read_gbps = 4'000.0, .gflops = 800'000.0};
  header.options = {{"max_num_seqs", "64"}, {"max_num_batched_tokens", "2048"}, {"cuda_graphs", "true"}};
  header.ops = {found_op("qkv", OpKind::linear), found_op("attention_decode", OpKind::attention)};
  return header;
}

inline KernelLaunch launch_of_waves(double waves, double occupancy = 0.5,
                                    const char* path = "strip_product") {
  KernelLaunch launch;
  launch.kernel = "kernel";
  launch.path = path;
  launch.grid = {static_cast<int32_t>(132 * waves), 1, 1};
  launch.block = {256, 1, 1};
  launch.blocks_per_sm = 1;
  launch.limiter = OccupancyLimiter::registers;
  launch.occupancy = occupancy;
  launch.waves = waves;
  return launch;
}

/// A decode step of 32 sequences that replays a graph: products at 90 % of the roofline, attention at 85 %.
inline StepSummary device_step(int64_t number) {
  StepSummary step;
  step.step = number;
  step.start_ns = 1'000'000 + number * 1'000'000;
  step.wall_us = 1'000.0;
  step.gpu_us = 990.0;
  step.gpu_idle_us = 10.0;
  step.on_device = true;
  step.batch.shape.decode_tokens = step.batch.shape.decode_sequences = 32;
  step.batch.graph_batch = 32;
  step.batch.kv_blocks_used = 100;
  step.batch.kv_blocks_total = 1'000;
  OpSummary qkv{
      .op = "qkv", .calls = 32, .us = 800.0, .floor_us = 720.0, .bound = Bound::memory, .launches = {0}};
  OpSummary attention{.op = "attention_decode",
                      .calls = 32,
                      .us = 190.0,
                      .floor_us = 161.0,
                      .bound = Bound::memory,
                      .launches = {1}};
  step.ops = {qkv, attention};
  return step;
}

/// Evidence of 100 steps, each as `change` leaves it; a step contains its number.
class FoundIn {
 public:
  explicit FoundIn(ProfileHeader header = device_header()) {
    evidence.header(std::move(header));
    evidence.launch(launch_of_waves(1.0));
    evidence.launch(launch_of_waves(2.0));
  }
  template <class Change>
  FoundIn& steps(Change change) {
    for (int64_t i = 0; i < 100; ++i) {
      StepSummary step = device_step(i);
      change(step);
      evidence.add(step);
    }
    return *this;
  }
  /// The finding of that name; one with gain 0 if there is none.
  Finding of(std::string_view rule) const {
    const std::vector<Finding> all = find_all(evidence);
    const auto found = std::ranges::find(all, rule, &Finding::rule);
    return found == all.end() ? Finding{} : *found;
  }
  std::string first() const {
    const std::vector<Finding> all = find_all(evidence);
    return all.empty() ? "none" : std::string(all.front().rule);
  }

  Evidence evidence;
};

inline constexpr auto kUnchanged = [](StepSummary&) {};

}  // namespace minfer::test
