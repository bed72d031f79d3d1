#pragma once

#include <span>
#include <string>

#include "profiling/json/json_text.h"
#include "profiling/page/device_time.h"
#include "profiling/report/report_data.h"
#include "profiling/requests/slow_requests.h"

namespace minfer {

// The page's data beside a report, short enough to send twice a second. Times in microseconds.

/// {"ops":[name],"host":[name of a host span],"request_ids":[id],"steps":[...]}. A step has "batch": requests and tokens of
/// prefill and decode, padded tokens, tokens from the prefix cache, preempted and waiting requests, tokens drawn under grammars and
/// forced by them, prompt tokens allowed by a target, draft tokens checked and right; "kv": used and total blocks; "host_us": by host
/// span; "ops": index of the name, calls, time, GB/s, share of the roofline (0: not known), idle time behind it; "requests": indices
/// into the ids, at most kMostRequestsOfStep.
inline constexpr size_t kMostRequestsOfStep = 64;
void write_page_steps(JsonText& json, std::span<const StepSummary> steps);

/// [{...}]: a request's times, tokens, steps, and share of the device. "drafts", if it had any: steps to which it brought draft
/// tokens, the number of these tokens, and how many were right. `waterfalls`: of the same requests, or none.
void write_page_requests(JsonText& json, std::span<const EndedRequest> requests, const DeviceTime& device,
                         std::span<const RequestWaterfall> waterfalls = {});

/// Appends the output of `minfer profile report -o json` on one line, with all ops but without the kinds of launches.
void append_page_report(std::string& out, const ReportData& data);
/// The same for its top-down view. null: no op was recorded.
void append_page_view(std::string& out, const ReportData& data);

}  // namespace minfer
