#pragma once

#include <string>
#include <string_view>

#include "kernels/device_sample.h"
#include "profiling/counters/counter_window.h"
#include "profiling/host/host_sample.h"
#include "profiling/json/json_field.h"
#include "profiling/json/json_text.h"
#include "profiling/record/ended_request.h"
#include "profiling/record/kept_trial.h"
#include "profiling/record/profile_header.h"
#include "profiling/record/rank_step.h"
#include "profiling/summary/summary.h"
#include "profiling/trace/range_analysis.h"

namespace minfer {

inline constexpr std::string_view kStepSchema = "minfer.step/2", kLaunchSchema = "minfer.launch/1",
                                  kMemorySchema = "minfer.memory/1", kKernelSchema = "minfer.kernel/1",
                                  kCountersSchema = "minfer.counters/1", kRequestSchema = "minfer.request/1",
                                  kRankSchema = "minfer.rank/1", kHostSchema = "minfer.host/1",
                                  kDeviceSchema = "minfer.device/1", kTrialSchema = "minfer.trial/1";

/// A T as a JSON object; for a type with lines of its own, the object of its line (see step.schema.json and the other files).
template <class T>
struct JsonOf {
  /// Times have three decimals (nanoseconds); bytes that are not UTF-8 become U+FFFD.
  static void write(JsonText& json, const T& value);
  /// Replaces the contents of `value` and reuses its memory. Skips unknown fields. Throws FileError, naming the field.
  static void read(const JsonField& object, T& value);
};

// Each is instantiated where its members are named.
extern template struct JsonOf<StepSummary>;
extern template struct JsonOf<KernelLine>;
extern template struct JsonOf<RangeLine>;
extern template struct JsonOf<StepKernels>;
extern template struct JsonOf<CounterWindow>;
extern template struct JsonOf<EndedRequest>;
extern template struct JsonOf<RankStep>;
extern template struct JsonOf<HostSample>;
extern template struct JsonOf<DeviceSample>;
extern template struct JsonOf<KeptTrial>;
extern template struct JsonOf<ProfileHeader>;
extern template struct JsonOf<KernelLaunch>;
extern template struct JsonOf<MemoryUse>;

/// Appends a value's line, including the newline.
template <class T>
void append_line(std::string& out, const T& value) {
  JsonText json(out);
  JsonOf<T>::write(json, value);
  out += '\n';
}

template <class T>
T read_json(const JsonField& object) {
  T value;
  JsonOf<T>::read(object, value);
  return value;
}

// The lines that have more than one value.

void append_header_line(std::string& out, const ProfileHeader& header);
void append_launch_line(std::string& out, int32_t index, const KernelLaunch& launch);
/// The use of the device's memory when the profile ended.
void append_memory_line(std::string& out, const MemoryUse& memory, int64_t clock_ns);
/// The line of the launch with number `index` in the steps' launches, as a value within a larger document.
void write_launch(JsonText& json, int32_t index, const KernelLaunch& launch);
/// Checks, too, that the step names launches below `num_launches`, the number of their lines so far.
void read_step(const JsonField& line, int32_t num_launches, StepSummary& step);
/// The members of a trial's line, without its schema.
void write_trial(JsonText& json, const KeptTrial& trial);

}  // namespace minfer
