#pragma once

#include <vector>

#include "profiling/record/profile_header.h"
#include "profiling/record/step_record.h"
#include "profiling/summary/summary.h"

namespace minfer::test {

/// Ops of a small two-layer model: embed, then for each layer qkv, attention of decode and of prefill tokens,
/// gate_up, then lm_head and sample.
std::vector<OpInfo> sample_ops();

ProfileHeader sample_header(ProfileDetail detail = ProfileDetail::op);

/// A step of these tokens in which op i takes (i + 1) * 1,000 ns; attention runs only for kinds of tokens
/// that the step has.
StepRecord sample_record(int64_t step, int32_t decode_tokens, int32_t prefill_tokens);

/// The launches of a device's steps. sample_steps() below makes summaries
/// of steps 0 to count - 1, every third of which has prefill tokens.
std::vector<KernelLaunch> sample_launches();
/// A step of four decoding sequences on a device: each op takes 10 us, then the device idles 10 us until the host has launched the next.
StepRecord sample_device_record(int64_t step, bool with_ends);
std::vector<StepSummary> sample_steps(int64_t count, ProfileDetail detail = ProfileDetail::op);

}  // namespace minfer::test
