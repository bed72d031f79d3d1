#include "profiling/findings/findings_report.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "profiling/findings/rules.h"
#include "profiling/json/line_members.h"
#include "profiling/text/table.h"

namespace minfer {
namespace {

std::string introduction(const Diagnosis& diagnosis) {
  return fmt::format(
      "{} step{}, {} ended request{}, {} ms with work{}{}", diagnosis.steps, diagnosis.steps == 1 ? "" : "s",
      diagnosis.requests, diagnosis.requests == 1 ? "" : "s", ms(diagnosis.wall_us),
      diagnosis.idle_us > 0.01 * diagnosis.wall_us ? fmt::format(", {} ms without", ms(diagnosis.idle_us))
                                                   : "",
      diagnosis.devices);
}

/// "12 to 25 %", "12 %" where both are alike.
std::string gain_text(const Finding& finding) {
  const double from = std::round(100.0 * finding.gain_from), to = std::round(100.0 * finding.gain_to);
  return from == to ? fmt::format("{:.0f} %", to) : fmt::format("{:.0f} to {:.0f} %", from, to);
}

std::string verdict(const Diagnosis& diagnosis) {
  if (diagnosis.steps == 0) return "Nothing can be said: the profile holds no step.";
  if (!diagnosis.is_healthy()) {
    const Finding& worst = diagnosis.findings.front();
    return fmt::format("Slowed by {}: {} of the {} would be saved. {}", worst.rule, gain_text(worst),
                       name(worst.of), diagnosis.limit.text);
  }
  // Who is far from the hardware's limits is not called healthy because no rule knows why.
  return (diagnosis.limit.is_of_hardware ? "Healthy: no finding above 5 %. " : "No finding above 5 %. ") +
         diagnosis.limit.text;
}

/// The findings that a reader sees: up to the last that is worth more than 5 %, or whose advice helped. All are sorted by their weight.
std::span<const Finding> shown(const Diagnosis& diagnosis, bool all) {
  const auto& findings = diagnosis.findings;
  const auto is_left_out = [](const Finding& finding) {
    return finding.weight() <= kHealthyGain &&
           std::ranges::none_of(finding.measured, &MeasuredGain::helped, &KeptTrial::gain);
  };
  const auto end = std::find_if_not(findings.rbegin(), findings.rend(), is_left_out).base();
  return {findings.begin(), all ? findings.end() : end};
}

/// Says how many findings are not shown; empty if all are.
std::string left_out(const Diagnosis& diagnosis, bool all) {
  const size_t count = diagnosis.findings.size() - shown(diagnosis, all).size();
  if (count == 0) return {};
  return fmt::format(" {} of 5 % and less {} not shown (explain --all).",
                     count == 1 ? "A finding" : fmt::format("{} findings", count), count == 1 ? "is" : "are");
}

Table table_of(std::span<const Finding> findings) {
  Table table{.title = "Findings", .columns = {"finding", "class", "at stake", "%", "gain", "of"}};
  for (const Finding& finding : findings) {
    table.add(finding.rule, name(finding.group), ms(finding.stake_us) + " ms",
              fmt::format("{:.0f}", 100.0 * finding.stake), gain_text(finding), name(finding.of));
  }
  return table;
}

/// The name as the rules have it, which outlives every finding.
std::string_view rule_name_of(const JsonField& field) {
  const std::string text = field.text();
  for (const std::span<const Rule> rules : all_rules()) {
    const auto found = std::ranges::find(rules, text, &Rule::name);
    if (found != rules.end()) return found->name;
  }
  field.expected("the name of a rule of this version");
}

}  // namespace

/// The measured gain of a finding's advice is written, but not read back: profiles have it in lines of its own.
template <class Json>
void members(Json& json, Is<Finding> auto& finding) {
  json.member("finding", finding.rule, rule_name_of);
  json.member("class", finding.group,
              one_name_of(FindingGroup::requests, FindingGroup::system, FindingGroup::kernels));
  json.member("evidence", finding.evidence, kText).member("at_stake_us", finding.stake_us, kNumber);
  json.member("at_stake", finding.stake, kNumber, 4).member("gain", finding.gain, kNumber, 4);
  json.member("gain_from", finding.gain_from, kNumber, 4).member("gain_to", finding.gain_to, kNumber, 4);
  json.member("gain_of", finding.of, one_name_of(GainOf::wall_time, GainOf::throughput, GainOf::latency));
  json.optional("has_option", finding.has_option, kBoolean, true);
  json.member("estimated", finding.estimated, kBoolean).member("advice", finding.advice, kText);
  json.plain_list("try", finding.trials, kText);
  if constexpr (!Json::kReads) {
    json.text().key("measured").open('[');
    for (const KeptTrial& trial : finding.measured) {
      json.text().open('{').field("text", std::string_view(trial.text()));
      write_trial(json.text(), trial);
      json.text().close('}');
    }
    json.text().close(']');
  }
}

template <class Json>
void members(Json& json, Is<Diagnosis> auto& diagnosis) {
  json.told("healthy", diagnosis.is_healthy()).told("verdict", std::string_view(verdict(diagnosis)));
  json.member("limit_of_hardware", diagnosis.limit.is_of_hardware, kBoolean);
  json.member("next_limit", diagnosis.limit.text, kText).member("steps", diagnosis.steps, kCount);
  json.member("requests", diagnosis.requests, kCount).member("wall_us", diagnosis.wall_us, kNumber);
  json.member("idle_us", diagnosis.idle_us, kNumber);
  if (json.has("devices", true)) json.member("devices", diagnosis.devices, kText);
  json.list("findings", diagnosis.findings);
}

bool Diagnosis::is_healthy() const {
  return worst() <= kHealthyGain;
}

Diagnosis diagnose(const Evidence& evidence) {
  std::vector<Finding> findings = find_all(evidence);
  for (Finding& finding : findings) {
    for (const KeptTrial& trial : evidence.trials)
      if (trial.finding == finding.rule || std::ranges::count(finding.trials, trial.option) > 0)
        finding.measured.push_back(trial);
  }
  Limit limit = next_limit(evidence, findings);
  return {.findings = std::move(findings),
          .limit = std::move(limit),
          .steps = evidence.steps.steps(),
          .requests = evidence.requests.requests,
          .wall_us = evidence.steps.wall_us,
          .idle_us = evidence.steps.idle_us,
          .devices = devices_text(evidence)};
}

std::string findings_text(const Diagnosis& diagnosis, bool colour, bool all) {
  const std::span<const Finding> findings = shown(diagnosis, all);
  std::string text = wrapped(verdict(diagnosis), kTextColumns) + "\n" +
                     wrapped(introduction(diagnosis) + "." + left_out(diagnosis, all), kTextColumns) + "\n";
  if (!findings.empty()) {
    Table table = table_of(findings);
    table.title = bold_if(colour, table.title);
    text += "\n" + text_table(table, kTextColumns);
  }
  int number = 0;
  for (const Finding& finding : findings) {
    text += fmt::format(
        "\n{}\n",
        wrapped(fmt::format("{}. {}: {}.", ++number, finding.rule, finding.evidence), kTextColumns));
    text += wrapped("   Try: " + finding.advice + ".", kTextColumns) + "\n";
    for (const KeptTrial& trial : finding.measured)
      text += wrapped("   Measured: " + trial.text() + ".", kTextColumns) + "\n";
  }
  return text;
}

std::string findings_markdown(const Diagnosis& diagnosis, bool all) {
  const std::span<const Finding> findings = shown(diagnosis, all);
  std::string text =
      verdict(diagnosis) + "\n\n" + introduction(diagnosis) + "." + left_out(diagnosis, all) + "\n";
  if (!findings.empty()) text += "\n" + markdown_table(table_of(findings)) + "\n";
  int number = 0;
  for (const Finding& finding : findings) {
    text += fmt::format("{}. **{}**: {}. Try: {}.", ++number, finding.rule, finding.evidence, finding.advice);
    for (const KeptTrial& trial : finding.measured)
      text += " Measured: " + trial.text() + ".";
    text += '\n';
  }
  return text;
}

void write_findings(JsonText& json, const Diagnosis& diagnosis) {
  JsonOf<Diagnosis>::write(json, diagnosis);
}

Diagnosis diagnosis_of(const JsonField& field) {
  return read_json<Diagnosis>(field);
}

}  // namespace minfer
