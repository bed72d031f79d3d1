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

/// How slow a request was: from its arrival to its end, to its first token, or the mean time between two of its tokens.
enum class RequestOrder : uint8_t { e2e, ttft, itl };
std::string_view name(RequestOrder order);
/// In microseconds; nothing of a request without a first token, or two.
std::optional<double> measure_us(const EndedRequest& request, RequestOrder order);

struct SlowRequests;

/// Keeps the slowest requests of a profile, `count` at most.
class SlowestRequests final : public ProfileVisitor {
 public:
  SlowestRequests(RequestOrder order, size_t count) : order_(order), count_(count) {}
  void request(EndedRequest request) override;

  int64_t seen() const { return seen_; }
  SlowRequests slowest() const;  ///< whose steps are not known yet

 private:
  RequestOrder order_;
  size_t count_;
  int64_t seen_ = 0;
  std::multimap<double, EndedRequest> by_time_;
};

/// What a request's time was spent in: steps that computed its prompt; behind its first token steps without prompts of others and with
/// them, steps that computed again what it had before it was preempted, those that went by until then, and that went by otherwise.
enum class RequestPart : uint8_t { prompt, alone, mixed, recompute, preempted, skipped };
inline constexpr size_t kRequestParts = 6;

/// From the end of a step that served a request to the end of the next one, which the rest is of; behind its first token.
struct RequestGap {
  double us = 0.0;
  int64_t other_steps = 0;  ///< that went by in between
  bool recomputes = false;  ///< the step computed again what the request had
  int64_t step = 0;
  double wall_us = 0.0;
  double idle_us = 0.0;  ///< that no op ran
  StepBatch batch;
};

struct RequestWaterfall {
  EndedRequest request;
  int64_t known_steps = 0;                     ///< that served it, are in the profile, and say so
  std::array<double, kRequestParts> us{};      ///< by RequestPart
  std::array<int64_t, kRequestParts> steps{};  ///< of them
  double draft_us = 0.0;  ///< that finding draft tokens took in its steps, for all whom they served
  std::vector<RequestGap> gaps = {};  ///< the three longest, longest first
};

struct SlowRequests {
  RequestOrder order;
  int64_t ended = 0;                           ///< requests that it was chosen among
  std::vector<RequestWaterfall> slowest = {};  ///< slowest first
  std::string note = {};                       ///< what read_profile() returned
};

/// Adds steps, in their order, to the waterfalls of those whom they served, which stay where they are: of a profile that is read, or these.
std::unique_ptr<ProfileVisitor> waterfall_sums(std::vector<RequestWaterfall>& requests);
void add_steps(std::vector<RequestWaterfall>& requests, std::span<const StepSummary> steps);

/// Reads a profile twice: for its `count` slowest requests, which is all it keeps, and for their steps. Throws what read_profile() does.
SlowRequests slow_requests(const std::filesystem::path& path, RequestOrder order, size_t count);

/// Members of an object: known_steps, waterfall, gaps.
void write_waterfall(JsonText& json, const RequestWaterfall& sum);
/// Text of at most kTextColumns columns. `colour`: bold titles.
std::string slow_requests_text(const SlowRequests& found, bool colour);
/// One object (schema minfer.requests/1), see "Requests" in profiling/formulas.md.
std::string slow_requests_json(const SlowRequests& found);

}  // namespace minfer
