#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "profiling/json/line_members.h"

namespace minfer {
namespace {

/// Up to the last place that is not 0.
template <class Json>
void accepted_member(Json& json, Is<StepBatch> auto& batch) {
  auto& places = batch.accepted_at;
  const auto end =
      std::find_if(places.rbegin(), places.rend(), [](uint16_t count) { return count > 0; }).base();
  std::vector<int32_t> counts(places.begin(), end);
  if constexpr (Json::kReads) places.fill(0);
  if (!json.has("accepted_at", batch.accepted_tokens > 0)) return;
  json.plain_list("accepted_at", counts, kInteger<0, UINT16_MAX>);
  if constexpr (Json::kReads) {
    if (counts.size() > places.size())
      json.field()["accepted_at"].expected(fmt::format("{} places at most", places.size()));
    std::ranges::transform(counts, places.begin(),
                           [](int32_t count) { return static_cast<uint16_t>(count); });
  }
}

template <class Json>
void batch_members(Json& json, Is<StepBatch> auto& batch) {
  auto& shape = batch.shape;
  json.told("requests", shape.decode_sequences + shape.prefill_sequences);
  json.member("prefill_requests", shape.prefill_sequences).member("decode_requests", shape.decode_sequences);
  json.member("prefill_tokens", shape.prefill_tokens).member("decode_tokens", shape.decode_tokens);
  if (json.has("longest_context", shape.longest_context > 0)) {
    json.member("decode_context", shape.decode_context);
    json.member("longest_context", shape.longest_context, kSmallFrom<1>);
    if constexpr (Json::kReads) {
      if (shape.decode_context < shape.longest_context)
        json.field()["longest_context"].expected(
            fmt::format("at most decode_context, {}", shape.decode_context));
    }
  }
  json.member("padded_tokens", batch.padded_tokens).member("prefix_hit_tokens", batch.prefix_hit_tokens);
  json.member("preempted", batch.preempted).member("waiting", batch.waiting);
  json.optional("constrained_rows", batch.constrained_rows).optional("forced_tokens", batch.forced_tokens);
  json.optional("prefill_budget", batch.prefill_budget);
  if (json.has("speculation", batch.drafts > 0)) {
    json.object("speculation", [&](auto& inner) {
      inner.member("drafts", batch.drafts, kSmallFrom<1>);
      inner.member("draft_tokens", batch.draft_tokens, kSmallFrom<1>);
      inner.member("accepted_tokens", batch.accepted_tokens);
      accepted_member(inner, batch);
    });
  }
  if (json.has("disk", batch.disk != DiskCounts())) {
    json.object("disk", [&](auto& inner) {
      auto& disk = batch.disk;
      inner.optional("written", disk.written).optional("read", disk.read).optional("dropped", disk.dropped);
      inner.optional("lost", disk.lost).optional("hit_tokens", disk.hit_tokens);
      inner.optional("read_us", disk.read_ns, kDuration);
    });
  }
}

template <class Json>
void phase_time_member(Json& json, std::string_view phase, Is<PhaseTime> auto& time) {
  if (json.has(phase, time.tokens != 0)) {
    json.object(phase,
                [&](auto& inner) { inner.member("us", time.us).member("tokens", time.tokens, kSmall); });
  } else if constexpr (Json::kReads) {
    time = {};
  }
}

template <class Json>
void attributed_by_member(Json& json, Is<StepSummary> auto& step) {
  if constexpr (Json::kReads) {
    const JsonField field = json.field()["attributed_by"];
    step.on_device = field.raw_text() != "host clocks";
    step.idle_source = IdleSource::none;
    if (step.on_device)
      json.member("attributed_by", step.idle_source,
                  one_name_of(IdleSource::none, IdleSource::launch_times, IdleSource::end_stamps));
  } else {
    json.told("attributed_by", step.attributed_by());
  }
}

}  // namespace

template <class Json>
void members(Json& json, Is<OpSummary> auto& op) {
  json.member("op", op.op).member("phase", op.phase, kStepPhase).member("calls", op.calls);
  json.member("us", op.us).member("bytes", op.bytes, kWork).member("flops", op.flops, kWork);
  json.optional("experts_read", op.experts_read, kCount, -1);
  if (json.has("link_bytes", op.link_bytes > 0)) {
    json.member("link_bytes", op.link_bytes, kWork).member("waited_us", op.waited_us);
  } else if constexpr (Json::kReads) {
    op.link_bytes = 0;
    op.waited_us = 0.0;
  }
  double roofline = op.roofline();
  json.told("gbps", op.gbps()).told("tflops", op.tflops(), 6).member("roofline", roofline, kNumber, 5);
  if constexpr (Json::kReads) op.floor_us = roofline * op.us;
  json.member("bound", op.bound, one_name_of(Bound::unknown, Bound::memory, Bound::compute));
  json.member("idle_us", op.idle_us).plain_list("launches", op.launches);
}

template <class Json>
void members(Json& json, Is<LayerOp> auto& op) {
  json.member("layer", op.layer, kSmallFrom<-1>).member("op", op.op);
  json.member("phase", op.phase, kStepPhase).member("us", op.us);
}

template <class Json>
void members(Json& json, Is<StepSummary> auto& step) {
  if constexpr (Json::kReads) step.batch = {};
  json.told("schema", kStepSchema).member("step", step.step).member("start_ns", step.start_ns, kTime);
  json.member("wall_us", step.wall_us).member("gpu_us", step.gpu_us).member("gpu_idle_us", step.gpu_idle_us);
  json.object("idle", [&](auto& idle) {
    idle.member("host_us", step.idle_host_us).member("device_us", step.idle_device_us);
    idle.member("late_ops", step.late_ops);
  });
  json.optional("predicted_us", step.batch.predicted_ns, kDuration);
  StepPhase phase = step.phase();
  json.member("phase", phase, kStepPhase);
  graph_member(json, phase, step.batch.graph_batch);
  json.object("batch", [&](auto& batch) { batch_members(batch, step.batch); });
  if constexpr (Json::kReads) {
    if (phase != step.phase()) json.field()["phase"].expected(name(step.phase()));
  }
  json.object("kv", [&](auto& kv) {
    kv.member("blocks_used", step.batch.kv_blocks_used).member("blocks_total", step.batch.kv_blocks_total);
  });
  json.object("host_us", [&](auto& host) {
    for (size_t i = 0; i < kHostSpans; ++i) {
      const auto span = static_cast<HostSpan>(i);
      is_optional(span) ? host.optional(name(span), step.host_us[i])
                        : host.member(name(span), step.host_us[i]);
    }
  });
  json.object("phases", [&](auto& phases) {
    phase_time_member(phases, "prefill", step.prefill);
    phase_time_member(phases, "decode", step.decode);
  });
  json.list("ops", step.ops).list("layers", step.layers, true);
  json.member("attributed", step.attributed, kNumber, 5);
  attributed_by_member(json, step);
  json.member("dropped", step.dropped).plain_list("requests", step.requests);
}

template <class Json>
void members(Json& json, Is<RankStep> auto& step) {
  json.told("schema", kRankSchema).member("step", step.step).member("rank", step.rank);
  json.member("begin_ns", step.begin_ns, kTime).member("end_ns", step.end_ns, kTime);
  json.member("computed_us", step.computed_ns, kDuration).member("exchange_us", step.exchange_ns, kDuration);
  json.member("waited_us", step.waited_ns, kDuration);
  json.optional("host_us", step.host_ns, kDuration, RankStep::kNotKnown);
  json.optional("launch_us", step.launch_ns, kDuration, RankStep::kNotKnown);
  json.optional("idle_us", step.idle_ns, kDuration, RankStep::kNotKnown);
}

void read_step(const JsonField& line, int32_t num_launches, StepSummary& step) {
  JsonOf<StepSummary>::read(line, step);
  for (size_t op = 0; op < step.ops.size(); ++op) {
    const std::vector<int32_t>& launches = step.ops[op].launches;
    const auto unknown =
        std::ranges::find_if(launches, [&](int32_t launch) { return launch >= num_launches; });
    if (unknown == launches.end()) continue;
    line["ops"][op]["launches"][static_cast<size_t>(unknown - launches.begin())].expected(
        fmt::format("a launch below {}", num_launches));
  }
}

template struct JsonOf<StepSummary>;
template struct JsonOf<RankStep>;

}  // namespace minfer
