#pragma once

#include <span>
#include <string>

#include "profiling/json/json_text.h"
#include "profiling/page/device_time.h"
#include "profiling/report/report_data.h"
#include "profiling/requests/slow_requests.h"

namespace minfer {

// What the page shows beside a report, short enough to be sent twice a second. Times in microseconds.

/// {"ops":[name],"host":[name of a host span],"request_ids":[id],"steps":[...]}. Of a step: "batch" is requests and tokens of
/// prefill and decode, tokens padded and from the prefix cache, preempted and waiting requests, tokens drawn under grammars and
/// forced by them, prompt tokens allowed by a target, draft tokens checked and right; "kv" blocks used and all; "host_us" by host
/// span; "ops" index of the name, calls, time, GB/s, part of the roofline (0: not known), idle time behind it; "requests" indices
/// into the ids, kMostRequestsOfStep at most.
inline constexpr size_t kMostRequestsOfStep = 64;
void write_page_steps(JsonText& json, std::span<const StepSummary> steps);

/// [{...}]: a request's times, tokens, steps, and what it took of the device. "drafts", if it had any: times that it brought draft
/// tokens to a step, these tokens, and how many of them were right. `waterfalls` of the same requests, or none.
void write_page_requests(JsonText& json, std::span<const EndedRequest> requests, const DeviceTime& device,
                         std::span<const RequestWaterfall> waterfalls = {});

/// Appends what `minfer profile report -o json` says with all ops, but without the kinds of launches; on one line.
void append_page_report(std::string& out, const ReportData& data);
/// The same of its view from the top down. null: no op was recorded.
void append_page_view(std::string& out, const ReportData& data);

}  // namespace minfer
