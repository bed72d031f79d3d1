#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "profiling/json/lines.h"
#include "profiling/requests/slow_requests.h"
#include "profiling/text/table.h"

namespace minfer {
namespace {

/// A part of a request's time.
struct PartRow {
  std::string_view part, label;  ///< for programs, for people
  double begin_us = -1.0;        ///< behind its arrival; -1: it lies beside the others
  double us = 0.0;
  int64_t steps = 0;
};

/// By RequestPart.
constexpr std::array<std::pair<std::string_view, std::string_view>, kRequestParts> kPartNames{
    {{"prefill.steps", "- steps that computed it"},
     {"decode.alone", "- steps without prompts"},
     {"decode.mixed", "- beside others' prompts"},
     {"decode.recompute", "- computed again"},
     {"decode.preempted", "- preempted"},
     {"decode.skipped", "- steps without it"}}};

double whole_us(const RequestWaterfall& sum) {
  return us_of(sum.request.end_ns - sum.request.arrival_ns);
}

std::vector<PartRow> part_rows(const RequestWaterfall& sum) {
  const EndedRequest& request = sum.request;
  const double queue_us = us_of(request.queue_ns()), token_us = queue_us + us_of(request.prefill_ns());
  double begin_us = queue_us;
  std::vector<PartRow> rows{{"queue", "queue", 0.0, queue_us}};
  const auto add = [&](std::string_view part, std::string_view label, double us, int64_t steps) {
    if (sum.known_steps == 0 || us < 1e-3) return;
    rows.push_back({part, label, begin_us, us, steps});
    begin_us += us;
  };
  rows.push_back({"prefill", "own prompt", queue_us, us_of(request.prefill_ns())});
  add(kPartNames[0].first, kPartNames[0].second, sum.us[0], sum.steps[0]);
  add("prefill.rest", "- the rest", token_us - begin_us, 0);
  rows.push_back({"decode", "decoding", begin_us = token_us, us_of(request.decode_ns())});
  for (size_t i = 1; i < kRequestParts; ++i)
    add(kPartNames[i].first, kPartNames[i].second, sum.us[i], sum.steps[i]);
  add("decode.rest", "- the rest", whole_us(sum) - begin_us, 0);
  for (const PartRow& row :
       {PartRow{"client_wait", "+ held by its client", -1.0, us_of(request.client_wait_ns)},
        PartRow{"grammar.mask", "+ following its grammar", -1.0, us_of(request.mask_ns)},
        PartRow{"grammar.compile", "+ its grammar compiled", -1.0, us_of(request.grammar_compile_ns)},
        PartRow{"drafts", "+ drafts for its steps", -1.0, sum.draft_us}}) {
    if (row.us > 0.0) rows.push_back(row);
  }
  return rows;
}

std::string why_of(const RequestWaterfall& sum, const RequestGap& gap) {
  if (gap.recomputes)
    return fmt::format("preempted; steps of others until it computed again what it had: {}", gap.other_steps);
  if (gap.us > 2.0 * gap.wall_us) {
    return fmt::format(
        "{} ms passed before it, with {} steps of others{}", ms(gap.us - gap.wall_us), gap.other_steps,
        gap.other_steps > 0 && sum.request.has_grammar ? "; its grammar may have held it" : "");
  }
  const auto alone = static_cast<size_t>(RequestPart::alone);
  const std::string usual =
      sum.us[alone] > 0.0 ? ms(sum.us[alone] / static_cast<double>(sum.steps[alone])) + " ms" : "unknown";
  if (gap.batch.shape.prefill_tokens > 0)
    return fmt::format("prompts of others computed beside it: {} (a step without prompts: {})",
                       gap.batch.shape.prefill_sequences, usual);
  if (gap.idle_us > 0.5 * gap.wall_us)
    return fmt::format("no op ran for {} of the step's {} ms", ms(gap.idle_us), ms(gap.wall_us));
  return fmt::format(
      "the ops took that long: {} sequences, {} draft tokens (its mean step without prompts: {})",
      gap.batch.shape.decode_sequences, gap.batch.draft_tokens, usual);
}

std::string bar_of(const PartRow& row, double all_us) {
  const auto column = [&](double us) {
    return static_cast<size_t>(std::lround(24.0 * std::clamp(us / std::max(all_us, 1e-3), 0.0, 1.0)));
  };
  const size_t begin = column(row.begin_us), end = row.begin_us < 0.0 ? begin : column(row.begin_us + row.us);
  std::string text(begin, ' ');
  for (size_t i = begin; i < end; ++i)
    text += "█";
  return text + std::string(24 - std::max(begin, end), ' ');
}

std::string waterfall_text(const RequestWaterfall& sum) {
  Table parts{{}, {"where its time went", "ms", "%", "steps", "from its arrival to its end"}};
  for (const PartRow& row : part_rows(sum)) {
    parts.add(row.label, ms(row.us), percent(row.us, whole_us(sum)),
              row.steps > 0 ? std::to_string(row.steps) : "-", bar_of(row, whole_us(sum)));
  }
  if (sum.gaps.empty()) return text_table(parts, kTextColumns);
  Table gaps{"Its longest gaps between tokens", {"step", "gap ms", "step ms", "prompt tokens", "sequences"}};
  for (const RequestGap& gap : sum.gaps) {
    const BatchShape& shape = gap.batch.shape;
    gaps.add(gap.step, ms(gap.us), ms(gap.wall_us), shape.prefill_tokens, shape.decode_sequences);
    gaps.below.push_back(why_of(sum, gap));
  }
  return text_table(parts, kTextColumns) + text_table(gaps, kTextColumns);
}

}  // namespace

std::string slow_requests_text(const SlowRequests& found, bool colour) {
  std::string text = fmt::format("{} requests ended; the {} slowest by {}\n", found.ended,
                                 found.slowest.size(), name(found.order));
  int64_t number = 0;
  for (const RequestWaterfall& sum : found.slowest) {
    const EndedRequest& its = sum.request;
    const std::string title = fmt::format(
        "{}. {}: {} {} ms; {} prompt tokens ({} cached, {} again), {} of output ({} of {} drafts right, {} "
        "forced), ended by {}, preempted {} times; {} of its {} steps known",
        ++number, its.id, name(found.order), ms(*measure_us(its, found.order)), its.prompt_tokens,
        its.cached_tokens, its.recomputed_tokens, its.output_tokens, its.accepted_tokens, its.draft_tokens,
        its.forced_tokens, its.finish, its.preemptions, sum.known_steps,
        int64_t{its.steps.prefill} + its.steps.decode);
    text += "\n" + bold_if(colour, wrapped(title, kTextColumns));
    if (sum.known_steps == 0 && its.steps.first >= 0)
      text += "\nNo step of the profile says that it served this request: what ran beside it is not known.";
    text += waterfall_text(sum);
  }
  return text;
}

void write_waterfall(JsonText& json, const RequestWaterfall& sum) {
  json.field("known_steps", sum.known_steps).key("waterfall").open('[');
  for (const PartRow& row : part_rows(sum)) {
    json.open('{').field("part", row.part).field("label", row.label).field("us", row.us);
    json.field("steps", row.steps);
    if (row.begin_us >= 0.0) json.field("begin_us", row.begin_us);
    json.field("share", row.us / std::max(whole_us(sum), 1e-3), 4).close('}');
  }
  json.close(']').key("gaps").open('[');
  for (const RequestGap& gap : sum.gaps) {
    const BatchShape& shape = gap.batch.shape;
    json.open('{').field("step", gap.step).field("us", gap.us).field("step_us", gap.wall_us);
    json.field("prompt_tokens", shape.prefill_tokens).field("sequences", shape.decode_sequences);
    json.field("other_steps", gap.other_steps).field("why", std::string_view(why_of(sum, gap))).close('}');
  }
  json.close(']');
}

std::string slow_requests_json(const SlowRequests& found) {
  std::string text;
  JsonText json(text);
  json.open('{').field("schema", std::string_view("minfer.requests/1")).field("by", name(found.order));
  json.field("ended", found.ended).key("slowest").open('[');
  for (const RequestWaterfall& sum : found.slowest) {
    json.open('{').field("us", *measure_us(sum.request, found.order));
    write_waterfall(json, sum);
    json.key("request");
    append_line(text, sum.request);
    text.back() = '}';
  }
  json.close(']').close('}');
  return text + "\n";
}

}  // namespace minfer
