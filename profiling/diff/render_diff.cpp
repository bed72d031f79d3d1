#include <cmath>

#include <fmt/format.h>

#include "profiling/diff/profile_diff.h"
#include "profiling/json/member_json.h"
#include "profiling/text/table.h"

namespace minfer {
namespace {

constexpr size_t kMostOps = 20;
constexpr size_t kMostLeftOut = 4;  // kinds that are named
constexpr size_t kMostShapes = 10;
constexpr double kLeastShareChange = 0.01;  // of a kind that both have

std::string signed_percent(double share) {
  return fmt::format("{:+.1f}", 100.0 * share);
}

/// "+-1.2", of the time by token in A.
std::string margin_text(const DiffTime& time) {
  if (time.margin_us < 0.0 || time.a_token_us <= 0.0) return "-";
  return fmt::format("{:.1f}", 100.0 * time.margin_us / time.a_token_us);
}

std::string_view verdict(const DiffTime& time) {
  if (time.margin_us < 0.0) return "one step";
  if (!time.is_certain()) return "noise";
  return time.token_change_us() > 0.0 ? "slower" : "faster";
}

std::string verdict(const OpDiff& op) {
  if (op.state == OpDiff::State::added) return "added";
  if (op.state == OpDiff::State::removed) return "removed";
  return std::string(verdict(op.time));
}

std::string title_of(const OpDiff& op) {
  if (op.is_rest) return op.op;
  return fmt::format("{}{} ({})", op.op, op.renamed_to.empty() ? "" : " -> " + op.renamed_to, name(op.phase));
}

Table phases_of(const ProfileDiff& diff) {
  Table table{"Steps (us; change of the time by token, +- of it: 95 %, by the spread of steps)",
              {"phase", "A steps", "B steps", "A us", "B us", "A us/tok", "B us/tok", "change%", "+-", ""}};
  const auto add = [&](std::string phase, int64_t a_steps, int64_t b_steps, const DiffTime& time) {
    table.add(phase, a_steps, b_steps, time.a_us, time.b_us, time.a_token_us, time.b_token_us,
              signed_percent(time.change()), margin_text(time), verdict(time));
  };
  int64_t a_steps = 0, b_steps = 0;
  for (const PhaseDiff& phase : diff.phases) {
    add(std::string(name(phase.phase)), phase.a_steps, phase.b_steps, phase.time);
    a_steps += phase.a_steps;
    b_steps += phase.b_steps;
  }
  if (diff.phases.size() > 1) add("all", a_steps, b_steps, diff.step);
  return table;
}

Table ops_of_diff(const ProfileDiff& diff) {
  Table table{"What explains it (us a step; of it: part of the difference, by token)",
              {"op", "A us", "B us", "change", "change%", "+-", "of it%", ""}};
  for (const OpDiff& op : diff.ops) {
    if (table.rows.size() == kMostOps) break;
    const bool in_both = op.state == OpDiff::State::both && op.time.a_us > 0.0;
    table.add(title_of(op), op.time.a_us, op.time.b_us,
              (op.time.b_us < op.time.a_us ? "" : "+") + three_digits(op.time.b_us - op.time.a_us),
              in_both ? signed_percent(op.time.change()) : "-", in_both ? margin_text(op.time) : "-",
              diff.step.is_certain()
                  ? fmt::format("{:.0f}", 100.0 * op.time.token_change_us() / diff.step.token_change_us())
                  : "-",
              verdict(op));
  }
  return table;
}

std::string left_out_text(const std::vector<std::pair<StepKind, int64_t>>& kinds, const std::string& side) {
  if (kinds.empty()) return {};
  std::string text;
  int64_t steps = 0;
  for (size_t i = 0; i < kinds.size(); ++i) {
    steps += kinds[i].second;
    if (i < kMostLeftOut)
      text += fmt::format("{}{} ({})", i == 0 ? "" : ", ", kinds[i].first.text(), kinds[i].second);
  }
  if (kinds.size() > kMostLeftOut) text += fmt::format(" and {} more kinds", kinds.size() - kMostLeftOut);
  return fmt::format("left out: {} steps of {} alone: {}", steps, side, text);
}

/// "132x1", in three dimensions only where there is a third.
std::string extent_text(const std::array<int32_t, 3>& extent) {
  return extent[2] > 1 ? fmt::format("{}x{}x{}", extent[0], extent[1], extent[2])
                       : fmt::format("{}x{}", extent[0], extent[1]);
}

/// "cublasLt 4x28, swiglu 64x7".
std::string paths_text(const std::vector<LaunchDiff>& launches) {
  std::string text;
  for (const LaunchDiff& launch : launches)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ",
                        launch.path.empty() ? launch.kernel : launch.path, extent_text(launch.grid));
  return text.empty() ? "none" : text;
}

Table shapes_of(const ProfileDiff& diff) {
  Table table{"Batch shapes that differ (steps, and their share of all)",
              {"steps of", "A steps", "A %", "B steps", "B %"}};
  for (const ShapeDiff& shape : diff.shapes) {
    if (table.rows.size() == kMostShapes) break;
    if (std::abs(shape.change()) < kLeastShareChange && shape.a_steps > 0 && shape.b_steps > 0) continue;
    table.add(shape.kind.text(), shape.a_steps, percent(shape.a_share, 1.0), shape.b_steps,
              percent(shape.b_share, 1.0));
  }
  return table;
}

std::string step_sentence(const ProfileDiff& diff) {
  const DiffTime& time = diff.step;
  const std::string by =
      fmt::format("{} against {} us a token", three_digits(time.b_token_us), three_digits(time.a_token_us));
  if (time.margin_us < 0.0)
    return fmt::format("B takes {} ({:+.1f} %); a side has one step: its spread is not known", by,
                       100.0 * time.change());
  if (!time.is_certain())
    return fmt::format("no difference beyond noise: B takes {} ({:+.1f} +- {} %)", by, 100.0 * time.change(),
                       margin_text(time));
  return fmt::format("B is {} by {:.1f} +- {} %: {}", time.change() > 0.0 ? "slower" : "faster",
                     100.0 * std::abs(time.change()), margin_text(time), by);
}

/// The op that explains most of a difference.
std::string first_cause(const ProfileDiff& diff) {
  if (!diff.step.is_certain() || diff.ops.empty()) return {};
  const OpDiff& op = diff.ops.front();
  std::string text = fmt::format("most of it: {}, {:.0f} % of the difference", title_of(op),
                                 100.0 * op.time.token_change_us() / diff.step.token_change_us());
  if (op.a_bytes > 0.0 && op.b_bytes > 0.0 && std::abs(op.b_bytes / op.a_bytes - 1.0) > 0.01)
    text += fmt::format("; it moves {} instead of {} MB a step", mb(op.b_bytes), mb(op.a_bytes));
  if (!op.a_kernels.empty() || !op.b_kernels.empty()) text += "; it launches other kernels";
  return text;
}

std::vector<std::string> front_lines(const ProfileDiff& diff, const DiffNames& names) {
  std::vector<std::string> lines{"A: " + names.a, "B: " + names.b, step_sentence(diff)};
  if (std::string cause = first_cause(diff); !cause.empty()) lines.push_back(std::move(cause));
  if (diff.by_phase) {
    lines.emplace_back(
        "the kinds of steps (phase and padded batch) that both have take under half of a side's time: whole "
        "phases are compared, by token");
  } else if (diff.kinds.size() <= kMostLeftOut) {
    std::string kinds;
    for (const StepKind& kind : diff.kinds)
      kinds += (kinds.empty() ? "" : ", ") + kind.text();
    lines.push_back("compared: " + kinds);
  } else {
    lines.push_back(fmt::format("compared: {} kinds of steps", diff.kinds.size()));
  }
  for (std::string text : {left_out_text(diff.left_out_a, "A"), left_out_text(diff.left_out_b, "B")}) {
    if (!text.empty()) lines.push_back(std::move(text));
  }
  return lines;
}

std::vector<std::string> back_lines(const ProfileDiff& diff) {
  std::vector<std::string> lines;
  if (diff.ops.size() > kMostOps)
    lines.push_back(fmt::format("{} more ops: -o json has all", diff.ops.size() - kMostOps));
  for (const SettingDiff& setting : diff.settings)
    lines.push_back(fmt::format("{}: A {}, B {}", setting.what, setting.a.empty() ? "-" : setting.a,
                                setting.b.empty() ? "-" : setting.b));
  return lines;
}

/// A kernel that one side launches alone: how, below the op's row.
std::string launch_text(const LaunchDiff& launch) {
  return fmt::format("{}{} blocks of {} threads{}: {}", launch.path.empty() ? "" : launch.path + " ",
                     extent_text(launch.grid), extent_text(launch.block),
                     launch.more_grids > 0 ? fmt::format(" (and {} other grids)", launch.more_grids) : "",
                     launch.kernel);
}

/// Ops whose kernels differ: "qkv (decode): strip_product 132x1 -> cublasLt 4x24", and each of them in full.
std::string kernels_text(const ProfileDiff& diff, bool is_text) {
  std::string text;
  const auto add = [&](const std::string& line, size_t depth) {
    const std::string indent(2 * depth, ' ');
    text += is_text ? indent + wrapped(line, kTextColumns - indent.size(), indent.size() + 2) + "\n"
                    : indent + "- " + line + "\n";
  };
  for (const OpDiff& op : diff.ops) {
    if (op.state != OpDiff::State::both || (op.a_launches.empty() && op.b_launches.empty())) continue;
    if (text.empty())
      text =
          is_text ? "Kernels that differ (path and grid)\n" : "### Kernels that differ (path and grid)\n\n";
    add(fmt::format("{}: {} -> {}", title_of(op), paths_text(op.a_launches), paths_text(op.b_launches)), 0);
    for (const LaunchDiff& launch : op.a_launches)
      add("A: " + launch_text(launch), 1);
    for (const LaunchDiff& launch : op.b_launches)
      add("B: " + launch_text(launch), 1);
  }
  return text;
}

}  // namespace

static void to_json(OrderedJson& json, const DiffTime& value) {
  MINFER_ADD_MEMBERS(a_us, b_us, a_token_us, b_token_us);
  json["change"] = value.a_token_us > 0.0 ? OrderedJson(value.change()) : OrderedJson();
  json["margin_token_us"] = value.margin_us < 0.0 ? OrderedJson() : OrderedJson(value.margin_us);
  json["certain"] = value.is_certain();
}

MINFER_MEMBERS_TO_JSON(LaunchDiff, kernel, path, grid, block, steps, more_grids)
MINFER_MEMBERS_TO_JSON(PhaseDiff, phase, a_steps, b_steps, time)
MINFER_MEMBERS_TO_JSON(SettingDiff, what, a, b)
MINFER_MEMBERS_TO_JSON(StepKind, phase, tokens)

static void to_json(OrderedJson& json, const ShapeDiff& value) {
  json = value.kind;
  MINFER_ADD_MEMBERS(a_steps, b_steps, a_share, b_share);
}

static void to_json(OrderedJson& json, const OpDiff& value) {
  json["op"] = value.is_rest ? OrderedJson() : OrderedJson(value.op);
  json["renamed_to"] = value.renamed_to.empty() ? OrderedJson() : OrderedJson(value.renamed_to);
  json["phase"] = value.is_rest ? OrderedJson() : OrderedJson(value.phase);
  json["verdict"] = verdict(value);
  MINFER_ADD_MEMBERS(time, a_bytes, b_bytes, a_kernels, b_kernels, a_launches, b_launches);
}

static OrderedJson left_out_json(const std::vector<std::pair<StepKind, int64_t>>& kinds) {
  OrderedJson json = OrderedJson::array();
  for (const auto& [kind, steps] : kinds) {
    json.push_back(kind);
    json.back()["steps"] = steps;
  }
  return json;
}

static std::string json_text(const ProfileDiff& diff, const DiffNames& names) {
  const OrderedJson json{
      {"schema", "minfer.diff/1"},
      {"a", names.a},
      {"b", names.b},
      {"step", diff.step},
      {"phases", diff.phases},
      {"ops", diff.ops},
      {"settings", diff.settings},
      {"kinds", diff.kinds},
      {"by_phase", diff.by_phase},
      {"shapes", diff.shapes},
      {"left_out", {{"a", left_out_json(diff.left_out_a)}, {"b", left_out_json(diff.left_out_b)}}}};
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

std::string_view name(DiffFormat format) {
  static constexpr std::array<std::string_view, 3> kNames{"table", "json", "md"};
  return kNames[static_cast<size_t>(format)];
}

std::string render_diff(const ProfileDiff& diff, const DiffNames& names, DiffFormat format) {
  if (format == DiffFormat::json) return json_text(diff, names);
  const bool is_text = format == DiffFormat::table;
  const auto lines_of = [&](const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines)
      text += is_text ? wrapped(line, kTextColumns) + "\n" : "- " + line + "\n";
    return text;
  };
  std::string text = (is_text ? "" : "## Two profiles\n\n") + lines_of(front_lines(diff, names));
  for (const Table& table : {phases_of(diff), ops_of_diff(diff), shapes_of(diff)}) {
    if (table.rows.empty()) continue;
    text += "\n" + (is_text ? text_table(table, kTextColumns, LongNames::wrap) : markdown_table(table));
  }
  for (const std::string& part : {kernels_text(diff, is_text), lines_of(back_lines(diff))}) {
    if (!part.empty()) text += "\n" + part;
  }
  return text;
}

}  // namespace minfer
