#pragma once

#include <vector>

#include "profiling/json/profile_header.h"
#include "profiling/record/step_record.h"
#include "profiling/report/summary.h"

namespace minfer::test {

/// Ops of a small two-layer model: embed, then for each layer qkv, attention of decode and of prefill tokens,
/// gate_up, then lm_head and sample.
std::vector<OpInfo> sample_ops();

ProfileHeader sample_header(ProfileDetail detail = ProfileDetail::op);

/// A step of these tokens in which op i takes (i + 1) * 1,000 ns; attention runs only for the kinds of tokens
/// there are.
StepRecord sample_record(int64_t step, int32_t decode_tokens, int32_t prefill_tokens);

/// Steps 0 to count - 1, every third with prefill tokens, summarised.
/// What the steps of a device launch.
std::vector<KernelLaunch> sample_launches();
/// A step of four decoding sequences on a device: each op takes 10 us and then idles 10 until the host has launched the next one.
StepRecord sample_device_record(int64_t step, bool with_ends);
std::vector<StepSummary> sample_steps(int64_t count, ProfileDetail detail = ProfileDetail::op);

}  // namespace minfer::test
