#pragma once

#include "profiling/chrome_trace/chrome_trace.h"
#include "tests/support/profiling/parsed_trace.h"
#include "tests/support/profiling/sample_profile.h"

/// Profiles as traces in Chrome's format.
namespace minfer::test {

inline std::string trace_text(const ProfileFile& file, const StepFilter& filter = {}) {
  std::string text;
  write_chrome_trace(file, filter, [&](std::string_view piece) { text += piece; });
  return text;
}

/// Parses the trace of a profile and checks that it is sound.
inline ParsedTrace traced(const ProfileFile& file, const StepFilter& filter = {}) {
  ParsedTrace trace(trace_text(file, filter));
  trace.expect_sound();
  return trace;
}

/// Steps 0 to 8 of the CPU; 0, 3 and 6 are mixed.
inline ProfileFile sampled_profile(ProfileDetail detail = ProfileDetail::layer) {
  ProfileFile file;
  file.header = sample_header(detail);
  file.steps = sample_steps(9, detail);
  return file;
}

/// The numbers of the steps that the trace shows.
inline std::vector<int64_t> steps_of(const ParsedTrace& trace) {
  std::vector<int64_t> steps;
  for (const ParsedTrace::Slice& slice : trace.slices) {
    if (slice.category == "step") steps.push_back(slice.args["step"]);
  }
  return steps;
}

}  // namespace minfer::test
