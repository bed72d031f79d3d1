#pragma once

#include <string>
#include <string_view>

#include "kernels/device_sample.h"
#include "profiling/counters/counter_window.h"
#include "profiling/findings/kept_trial.h"
#include "profiling/host/host_sample.h"
#include "profiling/json/json_field.h"
#include "profiling/json/json_text.h"
#include "profiling/record/ended_request.h"
#include "profiling/record/rank_step.h"
#include "profiling/report/summary.h"
#include "profiling/trace/range_analysis.h"

namespace minfer {

inline constexpr std::string_view kStepSchema = "minfer.step/2", kLaunchSchema = "minfer.launch/1",
                                  kMemorySchema = "minfer.memory/1", kKernelSchema = "minfer.kernel/1",
                                  kCountersSchema = "minfer.counters/1", kRequestSchema = "minfer.request/1",
                                  kRankSchema = "minfer.rank/1", kHostSchema = "minfer.host/1",
                                  kDeviceSchema = "minfer.device/1", kTrialSchema = "minfer.trial/1";

/// The schema of the lines that hold a T: see step.schema.json and the other files.
template <class T>
inline constexpr std::string_view kSchemaOf = "";
template <>
inline constexpr std::string_view kSchemaOf<StepSummary> = kStepSchema;
template <>
inline constexpr std::string_view kSchemaOf<KernelLine> = kKernelSchema;
template <>
inline constexpr std::string_view kSchemaOf<RangeLine> = kKernelSchema;
template <>
inline constexpr std::string_view kSchemaOf<StepKernels> = kKernelSchema;
template <>
inline constexpr std::string_view kSchemaOf<CounterWindow> = kCountersSchema;
template <>
inline constexpr std::string_view kSchemaOf<EndedRequest> = kRequestSchema;
template <>
inline constexpr std::string_view kSchemaOf<RankStep> = kRankSchema;
template <>
inline constexpr std::string_view kSchemaOf<HostSample> = kHostSchema;
template <>
inline constexpr std::string_view kSchemaOf<DeviceSample> = kDeviceSchema;
template <>
inline constexpr std::string_view kSchemaOf<KeptTrial> = kTrialSchema;

/// Appends a line of JSON, including the newline, for a type with a schema above. Times have three decimals (nanoseconds); bytes that are
/// not UTF-8 become U+FFFD.
template <class T>
void append_line(std::string& out, const T& value);
/// Reads a line of append_line(); for steps, see read_step(). Skips unknown fields. Throws FileError, naming the field.
template <class T>
T line_of(const JsonField& line);

// Each is instantiated where its members are named.
extern template void append_line(std::string&, const StepSummary&);
extern template void append_line(std::string&, const KernelLine&);
extern template void append_line(std::string&, const RangeLine&);
extern template void append_line(std::string&, const StepKernels&);
extern template void append_line(std::string&, const CounterWindow&);
extern template void append_line(std::string&, const EndedRequest&);
extern template void append_line(std::string&, const RankStep&);
extern template void append_line(std::string&, const HostSample&);
extern template void append_line(std::string&, const DeviceSample&);
extern template void append_line(std::string&, const KeptTrial&);
extern template KernelLine line_of(const JsonField&);
extern template RangeLine line_of(const JsonField&);
extern template StepKernels line_of(const JsonField&);
extern template CounterWindow line_of(const JsonField&);
extern template EndedRequest line_of(const JsonField&);
extern template RankStep line_of(const JsonField&);
extern template HostSample line_of(const JsonField&);
extern template DeviceSample line_of(const JsonField&);
extern template KeptTrial line_of(const JsonField&);

/// The line of a trial as members of an object.
void write_trial(JsonText& json, const KeptTrial& trial);
/// The line of a step as a value within a larger document.
void write_step(JsonText& json, const StepSummary& step);
/// Reads the line of a step into `step`; replaces its contents and reuses its memory. `num_launches`: lines of launches read so far.
void read_step(const JsonField& line, int32_t num_launches, StepSummary& step);

}  // namespace minfer
