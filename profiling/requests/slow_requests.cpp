#include "profiling/requests/slow_requests.h"

#include <algorithm>
#include <functional>

namespace minfer {
namespace {

/// Adds a profile's steps to the waterfalls of the requests that they served.
class WaterfallSums final : public ProfileVisitor {
 public:
  explicit WaterfallSums(std::vector<RequestWaterfall>& requests) {
    for (RequestWaterfall& sum : requests)
      served_.push_back({.sum = &sum});
  }

  void step(StepSummary& step) override { add(step); }
  void add(const StepSummary& step) {
    ++place_;
    for (Served& served : served_) {
      const EndedRequest& request = served.sum->request;  // others may have had its id before or behind
      if (step.step < request.steps.first || step.step > request.steps.last) continue;
      const auto place =
          step.served.empty() ? place_in(step.requests, request.id) : place_in(step.served, request.number);
      if (place >= 0) add(served, step, place < step.batch.shape.decode_sequences);
    }
  }

 private:
  struct Served {
    RequestWaterfall* sum;
    int64_t place = -1;  ///< of the last step that served it, among those of the profile
    int64_t step = -1;   ///< its number
    int64_t end_ns = 0;
  };

  /// -1: it is not there.
  static ptrdiff_t place_in(const auto& all, const auto& own) {
    const auto found = std::ranges::find(all, own);
    return found == all.end() ? -1 : found - all.begin();
  }

  /// `decodes`: it brought tokens that it had just generated.
  void add(Served& served, const StepSummary& step, bool decodes) {
    RequestWaterfall& sum = *served.sum;
    ++sum.known_steps;
    sum.draft_us += step.host_us[static_cast<size_t>(HostSpan::draft)];
    if (!decodes && (sum.request.first_token_ns == 0 || step.start_ns < sum.request.first_token_ns)) {
      add_part(sum, RequestPart::prompt, 1, step.start_ns, step.end_ns());
    } else {
      // Lines may be missing in between.
      const bool follows = served.place >= 0 && step.step - served.step == place_ - served.place;
      const int64_t others = follows ? place_ - served.place - 1 : 0;
      using enum RequestPart;
      if (others > 0) add_part(sum, decodes ? skipped : preempted, others, served.end_ns, step.start_ns);
      const RequestPart part = step.batch.shape.prefill_tokens > 0 ? mixed : alone;
      add_part(sum, decodes ? part : recompute, 1, step.start_ns, step.end_ns());
      if (follows) add_gap(served, step, others, !decodes);
    }
    served = {.sum = &sum, .place = place_, .step = step.step, .end_ns = step.end_ns()};
  }

  /// Adds only the time before the first token, or after it: a step goes on when its tokens are there.
  static void add_part(RequestWaterfall& sum, RequestPart part, int64_t steps, int64_t begin, int64_t end) {
    const EndedRequest& request = sum.request;
    const bool is_prompt = part == RequestPart::prompt;
    begin = std::max(begin, is_prompt ? request.first_scheduled_ns : request.first_token_ns);
    end = std::min(end, is_prompt && request.first_token_ns > 0 ? request.first_token_ns : request.end_ns);
    sum.us[static_cast<size_t>(part)] += us_of(std::max<int64_t>(0, end - begin));
    sum.steps[static_cast<size_t>(part)] += steps;
  }

  static void add_gap(const Served& served, const StepSummary& step, int64_t others, bool recomputes) {
    std::vector<RequestGap>& gaps = served.sum->gaps;
    const double us = us_of(std::min(step.end_ns(), served.sum->request.end_ns) - served.end_ns);
    gaps.insert(std::ranges::upper_bound(gaps, us, std::greater{}, &RequestGap::us),
                {us, others, recomputes, step.step, step.wall_us, step.gpu_idle_us, step.batch});
    if (gaps.size() > 3) gaps.pop_back();
  }

  std::vector<Served> served_;
  int64_t place_ = -1;
};

}  // namespace

std::string_view name(RequestOrder order) {
  constexpr std::array<std::string_view, 3> kNames{"e2e", "ttft", "itl"};
  return kNames[static_cast<size_t>(order)];
}

std::optional<double> measure_us(const EndedRequest& request, RequestOrder order) {
  if (order == RequestOrder::e2e) return us_of(request.end_ns - request.arrival_ns);
  if (request.first_token_ns == 0) return std::nullopt;
  if (order == RequestOrder::ttft) return us_of(request.first_token_ns - request.arrival_ns);
  if (request.output_tokens < 2) return std::nullopt;
  return us_of(request.decode_ns()) / (request.output_tokens - 1);
}

void SlowestRequests::request(EndedRequest request) {
  ++seen_;
  const std::optional<double> us = measure_us(request, order_);
  if (!us || (by_time_.size() == count_ && *us <= by_time_.begin()->first)) return;
  by_time_.emplace(*us, std::move(request));
  if (by_time_.size() > count_) by_time_.erase(by_time_.begin());
}

SlowRequests SlowestRequests::slowest() const {
  SlowRequests found{.order = order_, .ended = seen_};
  for (auto next = by_time_.rbegin(); next != by_time_.rend(); ++next)
    found.slowest.push_back({.request = next->second});
  return found;
}

std::unique_ptr<ProfileVisitor> waterfall_sums(std::vector<RequestWaterfall>& requests) {
  return std::make_unique<WaterfallSums>(requests);
}

void add_steps(std::vector<RequestWaterfall>& requests, std::span<const StepSummary> steps) {
  WaterfallSums sums(requests);
  for (const StepSummary& step : steps)
    sums.add(step);
}

SlowRequests slow_requests(const std::filesystem::path& path, RequestOrder order, size_t count) {
  SlowestRequests chosen(order, count);
  const std::string note = read_profile(path, chosen);
  SlowRequests found = chosen.slowest();
  found.note = note;
  WaterfallSums sums(found.slowest);
  read_profile(path, sums);
  return found;
}

}  // namespace minfer
