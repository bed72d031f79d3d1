#include <algorithm>
#include <array>
#include <limits>

#include "profiling/json/line_members.h"

namespace minfer {
namespace {

constexpr auto kUnixSeconds = kInteger<int64_t{0}, 250'000'000'000>;

/// The sizes of a grid, a block or a cluster, within the limits of all devices.
std::array<int32_t, 3> sizes_of(const JsonField& field, int32_t most_x, int32_t most_yz) {
  if (field.size() != 3) field.expected("three sizes");
  return {field[0].integer(1, most_x), field[1].integer(1, most_yz), field[2].integer(1, most_yz)};
}

template <class Json>
void sizes_member(Json& json, std::string_view name, auto& sizes, int32_t most_x, int32_t most_yz) {
  if constexpr (Json::kReads) {
    sizes = sizes_of(json.field()[name], most_x, most_yz);
  } else {
    json.plain_list(name, sizes);
  }
}

template <class Json>
void ceilings_members(Json& json, Is<Ceilings> auto& ceilings) {
  json.member("read_gbps", ceilings.read_gbps).member("gflops", ceilings.gflops);
  if (json.has("runs", ceilings.tries() > 0)) {
    json.member("runs", ceilings.runs).member("measured_unix_s", ceilings.measured_unix_s, kUnixSeconds);
  }
  json.optional("disturbed_runs", ceilings.disturbed_runs, kSmallFrom<1>);
  for (const auto& [name, unit] : kUnitCeilings)
    json.optional(name, ceilings.*unit);
}

template <class Json>
void option_members(Json& json, auto& options) {
  if constexpr (Json::kReads) {
    for (const std::string_view option : json.field().keys())
      options.emplace_back(without_controls(std::string(option)), json.field()[option].text());
  } else {
    for (const auto& [option, content] : options)
      json.told(option, content);
  }
}

/// The last of the tiers by itself is for readers of older versions.
template <class Json>
void tier_members(Json& json, Is<AskedTiers> auto& asked) {
  std::vector<int32_t> tiers = asked.numbers();
  json.told("tier", tiers.back());
  if (json.has("tiers", true)) json.plain_list("tiers", tiers);
  if constexpr (Json::kReads) {
    asked.kernels = std::ranges::find(tiers, 1) != tiers.end();
    asked.counters = std::ranges::find(tiers, 2) != tiers.end();
  }
}

}  // namespace

template <class Json>
void members(Json& json, Is<MemoryPart> auto& part) {
  constexpr std::string_view kOnDevice = "device", kPinned = "page-locked";
  json.member("what", part.what).member("bytes", part.bytes, kBytes);
  json.member("most_bytes", part.most_bytes, kBytes);
  std::string place(part.on_device ? kOnDevice : kPinned);
  json.member("place", place);
  if constexpr (Json::kReads) part.on_device = place == kOnDevice;
}

template <class Json>
void members(Json& json, Is<MemoryUse> auto& memory) {
  json.member("total_bytes", memory.total_bytes, kBytes).member("used_bytes", memory.used_bytes, kBytes);
  json.member("used_before_bytes", memory.used_before_bytes, kBytes).list("parts", memory.parts);
}

template <class Json>
void members(Json& json, Is<OpInfo> auto& op) {
  json.member("op", op.name).member("layer", op.layer, kSmallFrom<-1>);
  json.member("kind", op.kind, kNameTo<OpKind::spread_columns>);
  json.member("scope", op.scope, kNameTo<TokenScope::logits>);
  json.member("in_features", op.in_features).member("out_features", op.out_features);
  json.member("weight_bytes", op.weight_bytes, kBytes).optional("file_bytes", op.file_bytes, kBytes);
  if (json.has("converted", op.file_bytes > 0)) json.member("converted", op.converted);
  json.optional("fp8_products", op.fp8_products);
}

template <class Json>
void members(Json& json, Is<ProfileHeader> auto& header) {
  json.member("version", header.version).member("model", header.model);
  json.member("backend", header.backend).member("device", header.device);
  json.member("threads", header.threads).optional("cores", header.cores);
  json.member("activation_dtype", header.activation_dtype, one_name_of(DType::f32, DType::bf16));
  tier_members(json, header.asked);
  json.member("detail", header.detail, one_name_of(ProfileDetail::op, ProfileDetail::layer));
  json.object("ceilings", [&](auto& inner) { ceilings_members(inner, header.ceilings); });
  json.optional("cache_bytes", header.cache_bytes, kBytes);
  if (json.has("memory", header.memory.total_bytes > 0))
    json.object("memory", [&](auto& inner) { members(inner, header.memory); });
  json.object("options", [&](auto& inner) { option_members(inner, header.options); });
  json.object("clocks", [&](auto& inner) {
    inner.told("host", "monotonic");
    inner.member("clock_ns", header.clock_ns, kTime).member("unix_ns", header.unix_ns, kTime);
  });
  json.told("phase_rule", kPhaseRule).list("ops", header.ops);
}

template <class Json>
void members(Json& json, Is<KernelLaunch> auto& launch) {
  json.member("kernel", launch.kernel).member("path", launch.path);
  sizes_member(json, "grid", launch.grid, std::numeric_limits<int32_t>::max(), 65'535);
  sizes_member(json, "block", launch.block, 1'024, 1'024);
  sizes_member(json, "cluster", launch.cluster, 1'024, 1'024);
  json.member("registers", launch.registers).member("static_shared_bytes", launch.static_shared_bytes);
  json.member("dynamic_shared_bytes", launch.dynamic_shared_bytes);
  json.member("blocks_per_sm", launch.blocks_per_sm);
  json.member("limiter", launch.limiter, kNameTo<OccupancyLimiter::blocks>);
  json.member("occupancy", launch.occupancy, kNumber, 5).member("waves", launch.waves, kNumber, 5);
  json.optional("reads_ahead_bytes", launch.reads_ahead_bytes, kBytes);
}

void append_header_line(std::string& out, const ProfileHeader& header) {
  JsonText json(out);
  json.open('{').field("schema", kStepSchema).key("header");
  JsonOf<ProfileHeader>::write(json, header);
  json.close('}');
  out += '\n';
}

void write_launch(JsonText& json, int32_t index, const KernelLaunch& launch) {
  json.open('{').field("schema", kLaunchSchema).field("launch", index);
  MemberWriter writer(json);
  members(writer, launch);
  json.close('}');
}

void append_launch_line(std::string& out, int32_t index, const KernelLaunch& launch) {
  JsonText json(out);
  write_launch(json, index, launch);
  out += '\n';
}

void append_memory_line(std::string& out, const MemoryUse& memory, int64_t clock_ns) {
  JsonText json(out);
  json.open('{').field("schema", kMemorySchema).field("when", "end");
  json.field("clock_ns", clock_ns).key("memory");
  JsonOf<MemoryUse>::write(json, memory);
  json.close('}');
  out += '\n';
}

template struct JsonOf<ProfileHeader>;
template struct JsonOf<KernelLaunch>;
template struct JsonOf<MemoryUse>;

}  // namespace minfer
