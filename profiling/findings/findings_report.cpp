#include "profiling/findings/findings_report.h"

#include <algorithm>
#include <array>
#include <span>

#include <fmt/format.h>

#include "profiling/findings/rules.h"
#include "profiling/report/text/table.h"

namespace minfer {
namespace {

constexpr size_t kColumns = 80;

std::string introduction(const Diagnosis& diagnosis) {
  return fmt::format("{} steps, {} ended requests, {} ms with work{}", diagnosis.steps, diagnosis.requests,
                     three_digits(diagnosis.wall_us * 1e-3),
                     diagnosis.idle_us > 0.01 * diagnosis.wall_us
                         ? fmt::format(", {} ms without", three_digits(diagnosis.idle_us * 1e-3))
                         : "");
}

std::string verdict(const Diagnosis& diagnosis) {
  if (diagnosis.steps == 0) return "Nothing can be said: the profile holds no step.";
  return (diagnosis.is_healthy() ? "Healthy: no finding above 5 %. " : "Next, when these are mended: ") +
         diagnosis.next_limit;
}

std::string gain_text(const Finding& finding) {
  return fmt::format("{:.0f} %{}", 100.0 * finding.gain, finding.estimated ? " est." : "");
}

Table table_of(const Diagnosis& diagnosis) {
  Table table{
      .title = "Findings", .columns = {"finding", "class", "at stake", "%", "gain", "of"}, .rows = {}};
  for (const Finding& finding : diagnosis.findings) {
    table.rows.push_back({std::string(finding.rule), std::string(name(finding.group)),
                          three_digits(finding.stake_us * 1e-3) + " ms",
                          fmt::format("{:.0f}", 100.0 * finding.stake), gain_text(finding),
                          std::string(name(finding.of))});
  }
  return table;
}

/// The name as the rules have it, which outlives every finding.
std::string_view rule_name_of(const JsonField& field) {
  const std::string text = field.text();
  for (const std::span<const Rule> rules : {request_rules(), system_rules(), rank_rules(), kernel_rules()}) {
    const auto found = std::ranges::find(rules, text, &Rule::name);
    if (found != rules.end()) return found->name;
  }
  field.expected("the name of a rule of this version");
}

Finding finding_of(const JsonField& field) {
  return {.rule = rule_name_of(field["finding"]),
          .group = one_of(field["class"],
                          std::array{FindingGroup::requests, FindingGroup::system, FindingGroup::kernels}),
          .evidence = field["evidence"].text(),
          .stake_us = field["at_stake_us"].number(),
          .stake = field["at_stake"].number(),
          .gain = field["gain"].number(),
          .of = one_of(field["gain_of"], std::array{GainOf::wall_time, GainOf::throughput, GainOf::latency}),
          .estimated = field["estimated"].boolean(),
          .advice = field["advice"].text()};
}

}  // namespace

bool Diagnosis::is_healthy() const {
  return worst() <= kHealthyGain;
}

Diagnosis diagnose(const Evidence& evidence) {
  return {.findings = find_all(evidence),
          .next_limit = next_limit(evidence),
          .steps = evidence.steps().steps(),
          .requests = evidence.requests().requests,
          .wall_us = evidence.steps().wall_us,
          .idle_us = evidence.steps().idle_us};
}

std::string findings_text(const Diagnosis& diagnosis, bool colour) {
  std::string text;
  if (!diagnosis.findings.empty()) {
    Table table = table_of(diagnosis);
    if (colour) table.title = "\x1b[1m" + table.title + "\x1b[0m";
    text += text_table(table, kColumns);
  }
  int number = 0;
  for (const Finding& finding : diagnosis.findings) {
    text += fmt::format(
        "\n{}\n", wrapped(fmt::format("{}. {}: {}.", ++number, finding.rule, finding.evidence), kColumns));
    text += wrapped("   Try: " + finding.advice + ".", kColumns) + "\n";
  }
  if (!text.empty()) text += '\n';
  return text + wrapped(introduction(diagnosis) + ".", kColumns) + "\n" +
         wrapped(verdict(diagnosis), kColumns) + "\n";
}

std::string findings_markdown(const Diagnosis& diagnosis) {
  std::string text;
  if (!diagnosis.findings.empty()) text += markdown_table(table_of(diagnosis)) + "\n";
  int number = 0;
  for (const Finding& finding : diagnosis.findings)
    text +=
        fmt::format("{}. **{}**: {}. Try: {}.\n", ++number, finding.rule, finding.evidence, finding.advice);
  if (!text.empty()) text += '\n';
  return text + introduction(diagnosis) + ".\n\n" + verdict(diagnosis) + "\n";
}

void write_findings(JsonText& json, const Diagnosis& diagnosis) {
  json.open('{')
      .field("healthy", diagnosis.is_healthy())
      .field("next_limit", std::string_view(diagnosis.next_limit));
  json.field("steps", diagnosis.steps)
      .field("requests", diagnosis.requests)
      .field("wall_us", diagnosis.wall_us);
  json.field("idle_us", diagnosis.idle_us).key("findings").open('[');
  for (const Finding& finding : diagnosis.findings) {
    json.open('{').field("finding", finding.rule).field("class", name(finding.group));
    json.field("evidence", std::string_view(finding.evidence)).field("at_stake_us", finding.stake_us);
    json.field("at_stake", finding.stake, 4)
        .field("gain", finding.gain, 4)
        .field("gain_of", name(finding.of));
    json.field("estimated", finding.estimated).field("advice", std::string_view(finding.advice)).close('}');
  }
  json.close(']').close('}');
}

Diagnosis diagnosis_of(const JsonField& field) {
  Diagnosis diagnosis{.findings = {},
                      .next_limit = field["next_limit"].text(),
                      .steps = field["steps"].count(),
                      .requests = field["requests"].count(),
                      .wall_us = field["wall_us"].number(),
                      .idle_us = field["idle_us"].number()};
  const JsonField findings = field["findings"];
  for (size_t i = 0; i < findings.size(); ++i)
    diagnosis.findings.push_back(finding_of(findings[i]));
  return diagnosis;
}

}  // namespace minfer
