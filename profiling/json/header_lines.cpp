#include "profiling/json/header_lines.h"

#include <array>
#include <limits>

namespace minfer {
namespace {

OpInfo op_info_of(const JsonField& field) {
  OpInfo info;
  info.name = field["op"].text();
  info.layer = field["layer"].small(-1);
  info.kind = one_of(
      field["kind"],
      std::array{OpKind::embed,           OpKind::rms_norm,    OpKind::linear,     OpKind::gate_up_swiglu,
                 OpKind::rope_kv_write,   OpKind::attention,   OpKind::moe_route,  OpKind::moe_gate_up_swiglu,
                 OpKind::moe_down,        OpKind::gather,      OpKind::sample,     OpKind::transfer,
                 OpKind::all_reduce,      OpKind::all_gather,  OpKind::broadcast,  OpKind::activate,
                 OpKind::latent_kv_write, OpKind::head_linear, OpKind::delta_conv, OpKind::delta_rule,
                 OpKind::head_gate,       OpKind::short_conv});
  info.scope = one_of(field["scope"], std::array{TokenScope::all, TokenScope::decode, TokenScope::prefill,
                                                 TokenScope::logits});
  info.in_features = field["in_features"].count();
  info.out_features = field["out_features"].count();
  info.weight_bytes = field["weight_bytes"].bytes();
  if (const auto bytes = field.find("file_bytes")) info.file_bytes = bytes->bytes();
  if (const auto converted = field.find("converted")) info.converted = converted->text();
  if (const auto fp8 = field.find("fp8_products")) info.fp8_products = fp8->boolean();
  return info;
}

AskedTiers asked_tiers_of(const JsonField& field) {
  AskedTiers asked;
  for (size_t i = 0; i < field.size(); ++i) {
    const auto tier = field[i].small();
    asked.kernels = asked.kernels || tier == 1;
    asked.counters = asked.counters || tier == 2;
  }
  return asked;
}

/// Of a grid, a block or a cluster: no device takes larger ones.
std::array<int32_t, 3> sizes_of(const JsonField& field, int32_t most_x, int32_t most_yz) {
  if (field.size() != 3) field.expected("three sizes");
  return {field[0].integer(1, most_x), field[1].integer(1, most_yz), field[2].integer(1, most_yz)};
}

}  // namespace

MemoryUse memory_of(const JsonField& field) {
  MemoryUse memory;
  memory.total_bytes = field["total_bytes"].bytes();
  memory.used_bytes = field["used_bytes"].bytes();
  memory.used_before_bytes = field["used_before_bytes"].bytes();
  const JsonField parts = field["parts"];
  for (size_t i = 0; i < parts.size(); ++i) {
    const JsonField part = parts[i];
    memory.parts.push_back({.what = part["what"].text(),
                            .bytes = part["bytes"].bytes(),
                            .most_bytes = part["most_bytes"].bytes(),
                            .on_device = part["place"].text() == "device"});
  }
  return memory;
}

ProfileHeader header_of(const JsonField& field) {
  ProfileHeader header;
  header.version = field["version"].text();
  header.model = field["model"].text();
  header.backend = field["backend"].text();
  header.device = field["device"].text();
  header.threads = field["threads"].small();
  if (const auto cores = field.find("cores")) header.cores = cores->small();
  header.activation_dtype = one_of(field["activation_dtype"], std::array{DType::f32, DType::bf16});
  header.detail = one_of(field["detail"], std::array{ProfileDetail::op, ProfileDetail::layer});
  if (const auto tiers = field.find("tiers")) header.asked = asked_tiers_of(*tiers);
  const JsonField ceilings = field["ceilings"];
  header.ceilings = {.read_gbps = ceilings["read_gbps"].number(), .gflops = ceilings["gflops"].number()};
  if (const auto runs = ceilings.find("runs")) {
    header.ceilings.runs = runs->small();
    header.ceilings.measured_unix_s = ceilings["measured_unix_s"].integer(0, int64_t{250'000'000'000});
  }
  if (const auto runs = ceilings.find("disturbed_runs")) header.ceilings.disturbed_runs = runs->small(1);
  for (const auto& [name, unit] : kUnitCeilings) {
    if (const auto gflops = ceilings.find(name)) header.ceilings.*unit = gflops->number();
  }
  if (const auto cache = field.find("cache_bytes")) header.cache_bytes = cache->bytes();
  if (const auto memory = field.find("memory")) header.memory = memory_of(*memory);
  const JsonField options = field["options"];
  for (const std::string_view option : options.keys())
    header.options.emplace_back(printable(std::string(option)), options[option].text());
  const JsonField clocks = field["clocks"];
  header.clock_ns = clocks["clock_ns"].time_ns();
  header.unix_ns = clocks["unix_ns"].time_ns();
  const JsonField ops = field["ops"];
  for (size_t i = 0; i < ops.size(); ++i)
    header.ops.push_back(op_info_of(ops[i]));
  return header;
}

KernelLaunch launch_of(const JsonField& field) {
  KernelLaunch launch;
  launch.kernel = field["kernel"].text();
  launch.path = field["path"].text();
  launch.grid = sizes_of(field["grid"], std::numeric_limits<int32_t>::max(), 65'535);
  launch.block = sizes_of(field["block"], 1'024, 1'024);
  launch.cluster = sizes_of(field["cluster"], 1'024, 1'024);
  launch.registers = field["registers"].small();
  launch.static_shared_bytes = field["static_shared_bytes"].small();
  launch.dynamic_shared_bytes = field["dynamic_shared_bytes"].small();
  launch.blocks_per_sm = field["blocks_per_sm"].small();
  launch.limiter = one_of(field["limiter"], std::array{OccupancyLimiter::unknown, OccupancyLimiter::registers,
                                                       OccupancyLimiter::shared_memory,
                                                       OccupancyLimiter::threads, OccupancyLimiter::blocks});
  launch.occupancy = field["occupancy"].number();
  launch.waves = field["waves"].number();
  if (const auto ahead = field.find("reads_ahead_bytes")) launch.reads_ahead_bytes = ahead->bytes();
  return launch;
}

}  // namespace minfer
