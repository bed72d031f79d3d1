#include "profiling/report/report_tables.h"

#include <algorithm>

#include <fmt/format.h>

namespace minfer {
namespace {

constexpr size_t kNameColumns = 16;  // of an op that is not in the first column
constexpr size_t kKernelsOfOp = 4;   // that are shown

// The groups that have steps, by name, and "all" if that is not the same.
std::vector<std::pair<std::string, const StepGroup*>> groups_of(const Aggregate& aggregate) {
  std::vector<std::pair<std::string, const StepGroup*>> groups;
  for (size_t i = 0; i < aggregate.by_phase.size(); ++i) {
    if (aggregate.by_phase[i].steps == 0) continue;
    groups.emplace_back(name(static_cast<StepPhase>(i)), &aggregate.by_phase[i]);
  }
  if (groups.size() != 1) groups.emplace_back("all", &aggregate.all);
  return groups;
}

}  // namespace

Table steps_table(const Aggregate& aggregate) {
  Table table{
      "Steps (ms; tokens of prefill and of decode)",
      {"phase", "steps", "wall", "mean", "median", "min", "max", "sd", "prefill", "decode", "tokens/s"}};
  for (const auto& [phase, group] : groups_of(aggregate)) {
    const Statistics& step = group->step_us;
    table.add(phase, group->steps, ms(group->wall_us), ms(step.mean), ms(step.median), ms(step.min),
              ms(step.max), ms(step.sd), group->prefill_tokens, group->decode_tokens, group->tokens_per_s());
  }
  return table;
}

Table prediction_table(const Aggregate& aggregate) {
  Table table{"Step times against what the engine expected (|error| in % of the measured time)",
              {"phase", "steps", "median", "95th", "longer%"}};
  for (const auto& [phase, group] : groups_of(aggregate)) {
    const PredictionError& error = group->prediction;
    if (error.steps == 0) continue;
    table.add(phase, error.steps, 100.0 * error.median, 100.0 * error.p95,
              percent(static_cast<double>(error.longer), static_cast<double>(error.steps)));
  }
  return table;
}

Table drafts_table(const std::vector<DraftUse>& uses) {
  Table table{"Draft tokens by context (us a step; gain: of the speed without, * by a model of the steps)",
              {"phase", "context", "steps", "proposed", "accept%", "draft", "check", "tok/seq", "gain%"}};
  for (const DraftUse& use : uses) {
    const auto steps = static_cast<double>(use.steps), sequences = static_cast<double>(use.sequences);
    table.add(name(use.phase), use.from_context > 0 ? fmt::format("{} on", use.from_context) : "-", use.steps,
              use.proposed, percent(static_cast<double>(use.accepted), static_cast<double>(use.proposed)),
              use.draft_us / steps, (use.us - use.draft_us) / steps,
              static_cast<double>(use.tokens()) / sequences,
              percent(-use.lost_us(), use.us) + (use.is_measured ? "" : "*"));
  }
  return table;
}

/// Masks and drafts have a column where there were any.
bool has_column(const Aggregate& aggregate, HostSpan span) {
  return !is_optional(span) || aggregate.all.host_us[static_cast<size_t>(span)] > 0.0;
}

Table wall_time_table(const Aggregate& aggregate) {
  Table table{"Where the wall time goes (%)", {"phase", "ops"}};
  std::vector<HostSpan> spans;
  for (size_t i = 0; i < kHostSpans; ++i) {
    if (has_column(aggregate, static_cast<HostSpan>(i))) spans.push_back(static_cast<HostSpan>(i));
  }
  for (const HostSpan span : spans)
    table.columns.emplace_back(name(span));
  table.columns.emplace_back("unattributed");
  for (const auto& [phase, group] : groups_of(aggregate)) {
    std::vector<std::string> row{phase, percent(group->gpu_us, group->wall_us)};
    for (const HostSpan span : spans)
      row.push_back(percent(group->host_us[static_cast<size_t>(span)], group->wall_us));
    row.push_back(percent(group->other_us(), group->wall_us));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table phases_table(const Aggregate& aggregate) {
  Table table{"Prefill and decode (time of the ops, mixed steps split)",
              {"phase", "ms", "%", "tokens", "us/token"}};
  const auto add = [&](std::string_view phase, const PhaseTime& sum) {
    const std::string per_token =
        sum.tokens > 0 ? three_digits(sum.us / static_cast<double>(sum.tokens)) : "-";
    table.add(phase, ms(sum.us), percent(sum.us, aggregate.all.gpu_us), sum.tokens, per_token);
  };
  add(name(StepPhase::prefill), aggregate.prefill);
  add(name(StepPhase::decode), aggregate.decode);
  return table;
}

Table ops_table(const std::vector<OpAggregate>& ops, double all_us) {
  Table table{"Ops (us of one call; roof%: of what the roofline allows)",
              {"op", "time%", "ms", "calls", "mean", "median", "min", "max", "sd", "GB/s", "TFLOP/s", "roof%",
               "bound"}};
  for (const OpAggregate& op : ops) {
    const Statistics& call = op.call_us;
    const bool known = op.bound != Bound::unknown;
    table.add(op.op, percent(op.us, all_us), ms(op.us), op.calls, call.mean, call.median, call.min, call.max,
              call.sd, op.gbps(), op.tflops(), known ? fmt::format("{:.0f}", 100.0 * op.roofline()) : "-",
              known ? std::string(name(op.bound)) : "-");
  }
  return table;
}

std::array<Table, 2> narrow_ops_tables(const std::vector<OpAggregate>& ops, double all_us) {
  constexpr size_t kRates = 9;  // the column that they begin with
  const Table all = ops_table(ops, all_us);
  return {
      columns_of(all, "Ops (us of one call)", 1, kRates),
      columns_of(all, "How fast they are (roof%: of what the roofline allows)", kRates, all.columns.size())};
}

Table idle_table(const Aggregate& aggregate) {
  Table table{"What the device idled (us a step)",
              {"phase", "between steps", "waiting for the host", "launched in time", "ops that waited"}};
  for (const auto& [phase, group] : groups_of(aggregate)) {
    const auto a_step = [&, steps = static_cast<double>(group->steps)](double sum) {
      return three_digits(sum / steps);
    };
    table.add(phase, a_step(group->between_steps_us()), a_step(group->idle_host_us),
              a_step(group->idle_device_us), a_step(static_cast<double>(group->late_ops)));
  }
  return table;
}

Table kernels_table(const std::vector<OpAggregate>& ops, const std::vector<KernelLaunch>& launches) {
  Table table{
      "Kernels (KiB: shared memory; per SM: blocks; occup%: theoretical; limit: what allows no more blocks)",
      {"op: kernel", "steps", "blocks", "threads", "regs", "KiB", "per SM", "occup%", "limit", "waves"}};
  for (const OpAggregate& op : ops) {
    std::vector<std::pair<int32_t, int64_t>> used(op.launches.begin(), op.launches.end());
    std::ranges::stable_sort(used, std::ranges::greater{}, &std::pair<int32_t, int64_t>::second);
    if (used.size() > kKernelsOfOp) used.resize(kKernelsOfOp);
    for (const auto& [index, steps] : used) {
      const KernelLaunch& launch = launches.at(static_cast<size_t>(index));
      const double shared_kib = (launch.static_shared_bytes + launch.dynamic_shared_bytes) / 1024.0;
      table.add(op.op, steps, launch.num_blocks(), launch.num_threads(), launch.registers, shared_kib,
                launch.blocks_per_sm, fmt::format("{:.0f}", 100.0 * launch.occupancy), name(launch.limiter),
                launch.waves);
      table.below.push_back(launch.kernel);
    }
  }
  return table;
}

Table converted_table(const std::vector<OpInfo>& ops) {
  Table table{
      "Weights that the device has in another type than the file (all layers; of experts one, of tables a "
      "row)",
      {"op", "converted", "layers", "MiB in the file", "MiB read"}};
  struct Sum {
    int64_t layers = 0, file_bytes = 0, bytes = 0;
  };
  std::vector<std::pair<std::pair<std::string, std::string>, Sum>> sums;  // by op and conversion
  for (const OpInfo& op : ops) {
    if (op.file_bytes == 0) continue;
    const std::pair key(op.name, op.converted);
    auto found = std::ranges::find(sums, key, &std::pair<std::pair<std::string, std::string>, Sum>::first);
    if (found == sums.end()) found = sums.insert(found, {key, {}});
    ++found->second.layers;
    found->second.file_bytes += op.file_bytes;
    found->second.bytes += op.weight_bytes;
  }
  for (const auto& [key, sum] : sums) {
    table.add(key.first, key.second, sum.layers, mib(sum.file_bytes), mib(sum.bytes));
  }
  return table;
}

Table memory_table(const MemoryUse& at_begin, const MemoryUse& at_end) {
  Table table{"Memory when the profile began and ended (MiB; % of what was in use)",
              {"what", "begin", "%", "end", "most", "place"}};
  const auto tenths = [](int64_t bytes) {
    return fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20));
  };
  const auto share = [&](int64_t bytes) {
    return percent(static_cast<double>(bytes), static_cast<double>(at_begin.used_bytes));
  };
  const bool has_end = at_end.total_bytes > 0;
  const auto part_of = [](const MemoryUse& memory, const MemoryPart& part) {
    const auto same = [&](const MemoryPart& other) {
      return other.what == part.what && other.on_device == part.on_device;
    };
    const auto found = std::ranges::find_if(memory.parts, same);
    return found == memory.parts.end() ? MemoryPart{} : *found;
  };
  const auto add_part = [&](const MemoryPart& part) {
    const MemoryPart begin = part_of(at_begin, part), end = part_of(at_end, part);
    table.add(part.what, tenths(begin.bytes), part.on_device ? share(begin.bytes) : "-",
              has_end ? tenths(end.bytes) : "-", tenths(std::max(begin.most_bytes, end.most_bytes)),
              part.on_device ? "device" : "page-locked");
  };
  for (const MemoryPart& part : at_begin.parts)
    add_part(part);
  for (const MemoryPart& part : at_end.parts) {
    if (part_of(at_begin, part).what.empty()) add_part(part);
  }
  const auto add = [&](std::string what, int64_t begin, int64_t end) {
    table.add(what, tenths(begin), share(begin), has_end ? tenths(end) : "-", "-", "device");
  };
  add("(driver's context, other programs)", at_begin.used_before_bytes, at_end.used_before_bytes);
  add("(not explained)", at_begin.unexplained_bytes(), at_end.unexplained_bytes());
  add("used of " + tenths(at_begin.total_bytes) + " MiB", at_begin.used_bytes, at_end.used_bytes);
  return table;
}

Table slowest_table(const std::vector<StepSummary>& steps) {
  Table table{"Slowest steps (ms; tokens of prefill and of decode)",
              {"step", "phase", "ms", "ops", "prefill", "decode", "reqs", "preempted", "longest op", "ms"}};
  for (const StepSummary& step : steps) {
    const BatchShape& shape = step.batch.shape;
    const auto longest = std::ranges::max_element(step.ops, {}, &OpSummary::us);
    const bool any = longest != step.ops.end();
    table.add(step.step, name(step.phase()), ms(step.wall_us), ms(step.gpu_us), shape.prefill_tokens,
              shape.decode_tokens, shape.decode_sequences + shape.prefill_sequences, step.batch.preempted,
              any ? shortened(longest->op, kNameColumns) : "-", any ? ms(longest->us) : "-");
  }
  return table;
}

}  // namespace minfer
