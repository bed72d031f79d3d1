#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profiling/json/json_reader.h"
#include "profiling/json/json_text.h"

namespace minfer {

/// The measure of slowness: from arrival to end, from arrival to the first token, or the mean time between two tokens.
enum class RequestOrder : uint8_t { e2e, ttft, itl };
std::string_view name(RequestOrder order);
/// The measure in microseconds; no value if the request lacks a first token, or a second.
std::optional<double> measure_us(const EndedRequest& request, RequestOrder order);

struct SlowRequests;

/// Keeps the slowest requests of a profile, `count` at most.
class SlowestRequests final : public ProfileVisitor {
 public:
  SlowestRequests(RequestOrder order, size_t count) : order_(order), count_(count) {}
  void request(EndedRequest request) override;

  int64_t seen() const { return seen_; }
  SlowRequests slowest() const;  ///< without their steps yet

 private:
  RequestOrder order_;
  size_t count_;
  int64_t seen_ = 0;
  std::multimap<double, EndedRequest> by_time_;
};

/// The parts of a request's time: steps that computed its prompt; after its first token, steps without and with prompts of others; steps
/// that recomputed its tokens after a preemption; steps of others while it was preempted; and other steps that did not serve it.
enum class RequestPart : uint8_t { prompt, alone, mixed, recompute, preempted, skipped };
inline constexpr size_t kRequestParts = 6;

/// From the end of a step that served a request to the end of the next such step, after the first token. The step data are the next one's.
struct RequestGap {
  double us = 0.0;
  int64_t other_steps = 0;  ///< steps in between
  bool recomputes = false;  ///< the next step recomputed tokens of the request
  int64_t step = 0;
  double wall_us = 0.0;
  double idle_us = 0.0;  ///< time in which no op ran
  StepBatch batch;
};

struct RequestWaterfall {
  EndedRequest request;
  int64_t known_steps = 0;                     ///< steps in the profile that say that they served it
  std::array<double, kRequestParts> us{};      ///< by RequestPart
  std::array<int64_t, kRequestParts> steps{};  ///< steps in each part
  double draft_us = 0.0;              ///< time to find draft tokens in its steps, for all requests in them
  std::vector<RequestGap> gaps = {};  ///< the three longest, longest first
};

struct SlowRequests {
  RequestOrder order;
  int64_t ended = 0;                           ///< number of requests that these were chosen from
  std::vector<RequestWaterfall> slowest = {};  ///< slowest first
  std::string note = {};                       ///< the result of read_profile()
};

/// Adds steps, in order, to the waterfalls of the requests that they served: from a read profile, or `steps`. `requests` must not move.
std::unique_ptr<ProfileVisitor> waterfall_sums(std::vector<RequestWaterfall>& requests);
void add_steps(std::vector<RequestWaterfall>& requests, std::span<const StepSummary> steps);

/// Reads a profile twice: for its `count` slowest requests, then for their steps. Keeps nothing else. Throws the errors of read_profile().
SlowRequests slow_requests(const std::filesystem::path& path, RequestOrder order, size_t count);

/// Members of an object: known_steps, waterfall, gaps.
void write_waterfall(JsonText& json, const RequestWaterfall& sum);
/// Text of at most kTextColumns columns. `colour`: bold titles.
std::string slow_requests_text(const SlowRequests& found, bool colour);
/// One object (schema minfer.requests/1), see "Requests" in profiling/formulas.md.
std::string slow_requests_json(const SlowRequests& found);

}  // namespace minfer
