#include "profiling/json/json_reader.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>

#include "kernels/error.h"
#include "profiling/json/counters_json.h"
#include "profiling/json/json_field.h"
#include "profiling/json/kernel_lines.h"

namespace minfer {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxLineBytes = 8u << 20;
constexpr size_t kChunkBytes = 64u << 10;

StepPhase phase_of(const JsonField& field) {
  return one_of(field, std::array{StepPhase::prefill, StepPhase::decode, StepPhase::mixed});
}

OpInfo op_info_of(const JsonField& field) {
  OpInfo info;
  info.name = field["op"].text();
  info.layer = field["layer"].integer<int32_t>(-1);
  info.kind =
      one_of(field["kind"], std::array{OpKind::embed, OpKind::rms_norm, OpKind::linear,
                                       OpKind::gate_up_swiglu, OpKind::rope_kv_write, OpKind::attention,
                                       OpKind::moe_route, OpKind::moe_gate_up_swiglu, OpKind::moe_down,
                                       OpKind::gather, OpKind::sample, OpKind::transfer});
  info.scope = one_of(field["scope"], std::array{TokenScope::all, TokenScope::decode, TokenScope::prefill,
                                                 TokenScope::logits});
  info.in_features = field["in_features"].integer<int64_t>();
  info.out_features = field["out_features"].integer<int64_t>();
  info.weight_bytes = field["weight_bytes"].integer<int64_t>();
  return info;
}

MemoryUse memory_of(const JsonField& field) {
  MemoryUse memory;
  memory.total_bytes = field["total_bytes"].integer<int64_t>();
  memory.used_bytes = field["used_bytes"].integer<int64_t>();
  memory.used_before_bytes = field["used_before_bytes"].integer<int64_t>();
  const JsonField parts = field["parts"];
  for (size_t i = 0; i < parts.size(); ++i) {
    const JsonField part = parts[i];
    memory.parts.push_back({.what = part["what"].text(),
                            .bytes = part["bytes"].integer<int64_t>(),
                            .most_bytes = part["most_bytes"].integer<int64_t>(),
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
  header.threads = field["threads"].integer<int32_t>();
  header.activation_dtype = one_of(field["activation_dtype"], std::array{DType::f32, DType::bf16});
  header.detail = one_of(field["detail"], std::array{ProfileDetail::op, ProfileDetail::layer});
  const JsonField ceilings = field["ceilings"];
  header.ceilings = {ceilings["read_gbps"].number(), ceilings["gflops"].number()};
  if (const auto memory = field.find("memory")) header.memory = memory_of(*memory);
  const JsonField options = field["options"];
  for (const auto& [option, content] : options.object().items()) {
    header.options.emplace_back(printable(option), options[option].text());
  }
  const JsonField clocks = field["clocks"];
  header.clock_ns = clocks["clock_ns"].integer<int64_t>();
  header.unix_ns = clocks["unix_ns"].integer<int64_t>();
  const JsonField ops = field["ops"];
  for (size_t i = 0; i < ops.size(); ++i)
    header.ops.push_back(op_info_of(ops[i]));
  return header;
}

StepBatch batch_of(const JsonField& field, const JsonField& kv) {
  StepBatch batch;
  batch.shape.prefill_sequences = field["prefill_requests"].integer<int32_t>();
  batch.shape.decode_sequences = field["decode_requests"].integer<int32_t>();
  batch.shape.prefill_tokens = field["prefill_tokens"].integer<int32_t>();
  batch.shape.decode_tokens = field["decode_tokens"].integer<int32_t>();
  batch.padded_tokens = field["padded_tokens"].integer<int32_t>();
  batch.prefix_hit_tokens = field["prefix_hit_tokens"].integer<int32_t>();
  batch.preempted = field["preempted"].integer<int32_t>();
  batch.waiting = field["waiting"].integer<int32_t>();
  batch.kv_blocks_used = kv["blocks_used"].integer<int32_t>();
  batch.kv_blocks_total = kv["blocks_total"].integer<int32_t>();
  return batch;
}

// "decode_b32": 32.
int32_t graph_batch_of(const JsonField& field) {
  constexpr std::string_view kPrefix = "decode_b";
  const std::string text = field.text();
  int32_t batch = 0;
  const char* end = text.data() + text.size();
  if (!text.starts_with(kPrefix) || std::from_chars(text.data() + kPrefix.size(), end, batch).ptr != end ||
      batch <= 0) {
    field.expected("decode_bN");
  }
  return batch;
}

void set_attributed_by(StepSummary& step, const JsonField& field) {
  const std::string text = field.text();
  step.on_device = text != "host clocks";
  if (!step.on_device) return;
  step.idle_source =
      one_of(field, std::array{IdleSource::none, IdleSource::launch_times, IdleSource::end_stamps});
}

PhaseTime phase_time_of(const std::optional<JsonField>& field) {
  if (!field) return {};
  return {(*field)["us"].number(), (*field)["tokens"].integer<int32_t>()};
}

// `num_launches`: of which lines came before.
OpSummary op_summary_of(const JsonField& field, int32_t num_launches) {
  OpSummary op;
  op.op = field["op"].text();
  op.phase = phase_of(field["phase"]);
  op.calls = field["calls"].integer<int32_t>();
  op.us = field["us"].number();
  op.bytes = field["bytes"].integer<int64_t>();
  op.flops = field["flops"].integer<int64_t>();
  op.floor_us = field["roofline"].number() * op.us;
  op.bound = one_of(field["bound"], std::array{Bound::unknown, Bound::memory, Bound::compute});
  op.idle_us = field["idle_us"].number();
  const JsonField launches = field["launches"];
  for (size_t i = 0; i < launches.size(); ++i) {
    op.launches.push_back(launches[i].integer<int32_t>());
    if (op.launches.back() >= num_launches)
      launches[i].expected(fmt::format("a launch below {}", num_launches));
  }
  return op;
}

LayerOp layer_op_of(const JsonField& field) {
  return {field["layer"].integer<int32_t>(-1), field["op"].text(), phase_of(field["phase"]),
          field["us"].number()};
}

StepSummary step_of(const JsonField& field, int32_t num_launches) {
  StepSummary step;
  step.step = field["step"].integer<int64_t>();
  step.start_ns = field["start_ns"].integer<int64_t>();
  step.wall_us = field["wall_us"].number();
  step.gpu_us = field["gpu_us"].number();
  step.gpu_idle_us = field["gpu_idle_us"].number();
  step.batch = batch_of(field["batch"], field["kv"]);
  if (const auto graph = field.find("graph")) step.batch.graph_batch = graph_batch_of(*graph);
  if (phase_of(field["phase"]) != step.phase()) field["phase"].expected(name(step.phase()));
  const JsonField host = field["host_us"];
  for (size_t i = 0; i < kHostSpans; ++i)
    step.host_us[i] = host[name(static_cast<HostSpan>(i))].number();
  const JsonField phases = field["phases"];
  step.prefill = phase_time_of(phases.find("prefill"));
  step.decode = phase_time_of(phases.find("decode"));
  const JsonField ops = field["ops"];
  for (size_t i = 0; i < ops.size(); ++i)
    step.ops.push_back(op_summary_of(ops[i], num_launches));
  if (const auto layers = field.find("layers")) {
    for (size_t i = 0; i < layers->size(); ++i)
      step.layers.push_back(layer_op_of((*layers)[i]));
  }
  step.attributed = field["attributed"].number();
  set_attributed_by(step, field["attributed_by"]);
  const JsonField idle = field["idle"];
  step.idle_host_us = idle["host_us"].number();
  step.idle_device_us = idle["device_us"].number();
  step.late_ops = idle["late_ops"].integer<int32_t>();
  step.dropped = static_cast<uint64_t>(field["dropped"].integer<int64_t>());
  const JsonField requests = field["requests"];
  for (size_t i = 0; i < requests.size(); ++i)
    step.requests.push_back(requests[i].text());
  return step;
}

std::array<int32_t, 3> sizes_of(const JsonField& field) {
  if (field.size() != 3) field.expected("three sizes");
  return {field[0].integer<int32_t>(1), field[1].integer<int32_t>(1), field[2].integer<int32_t>(1)};
}

KernelLaunch launch_of(const JsonField& field) {
  KernelLaunch launch;
  launch.kernel = field["kernel"].text();
  launch.path = field["path"].text();
  launch.grid = sizes_of(field["grid"]);
  launch.block = sizes_of(field["block"]);
  launch.cluster = sizes_of(field["cluster"]);
  launch.registers = field["registers"].integer<int32_t>();
  launch.static_shared_bytes = field["static_shared_bytes"].integer<int32_t>();
  launch.dynamic_shared_bytes = field["dynamic_shared_bytes"].integer<int32_t>();
  launch.blocks_per_sm = field["blocks_per_sm"].integer<int32_t>();
  launch.limiter = one_of(field["limiter"], std::array{OccupancyLimiter::unknown, OccupancyLimiter::registers,
                                                       OccupancyLimiter::shared_memory,
                                                       OccupancyLimiter::threads, OccupancyLimiter::blocks});
  launch.occupancy = field["occupancy"].number();
  launch.waves = field["waves"].number();
  return launch;
}

// Hands out the whole lines of a stream, each as long as kMaxLineBytes at most.
class Lines {
 public:
  Lines(std::istream& stream, std::string_view name) : stream_(stream), name_(name) {}

  /// The next whole line without its newline, valid until the next call; nothing: there is none.
  std::optional<std::string_view> next() {
    size_t end = buffer_.find('\n', begin_);
    while (end == std::string::npos) {
      buffer_.erase(0, begin_);
      begin_ = 0;
      if (buffer_.size() > kMaxLineBytes)
        fail<FileError>("{}:{}: longer than {} bytes", name_, number_ + 1, kMaxLineBytes);
      const size_t searched = buffer_.size();
      if (!read_more()) return std::nullopt;
      end = buffer_.find('\n', searched);
    }
    const std::string_view line = std::string_view(buffer_).substr(begin_, end - begin_);
    begin_ = end + 1;
    ++number_;
    return line;
  }
  /// Where the line that next() gave last stands, as FILE:LINE.
  std::string place() const { return fmt::format("{}:{}", name_, number_); }
  size_t number() const { return number_; }
  size_t rest_bytes() const { return buffer_.size() - begin_; }

 private:
  bool read_more() {
    const size_t size = buffer_.size();
    buffer_.resize(size + kChunkBytes);
    stream_.read(buffer_.data() + size, static_cast<std::streamsize>(kChunkBytes));
    buffer_.resize(size + static_cast<size_t>(stream_.gcount()));
    return buffer_.size() > size;
  }

  std::istream& stream_;
  std::string_view name_;
  std::string buffer_;
  size_t begin_ = 0;   ///< of what next() has not given yet
  size_t number_ = 0;  ///< lines given
};

Json parse_line(std::string_view line, const std::string& place) {
  Json json = Json::parse(line, nullptr, false);
  if (json.is_discarded()) fail<FileError>("{}: is no valid JSON", place);
  return json;
}

void add_launch(ProfileFile& file, const JsonField& line) {
  if (line["launch"].integer<int32_t>() != std::ssize(file.launches))
    line["launch"].expected(std::to_string(file.launches.size()));
  file.launches.push_back(launch_of(line));
}

void add_line(ProfileFile& file, const JsonField& line, const std::string& place) {
  const std::string schema = line["schema"].text();
  if (schema == kStepSchema) {
    file.steps.push_back(step_of(line, static_cast<int32_t>(file.launches.size())));
  } else if (schema == kLaunchSchema) {
    add_launch(file, line);
  } else if (schema == kCountersSchema) {
    file.counters.push_back(read_counters(line));
  } else if (schema != kKernelSchema) {
    fail<FileError>("{}: schema {}, expected {}, {}, {} or {}", place, schema, kStepSchema, kLaunchSchema,
                    kKernelSchema, kCountersSchema);
  } else if (is_range_line(line)) {
    file.ranges.push_back(range_line_of(line));
  } else {
    file.kernels.push_back(kernel_line_of(line));
  }
}

}  // namespace

ProfileFile read_profile(std::istream& stream, std::string_view name) {
  Lines lines(stream, name);
  ProfileFile file;
  const auto first = lines.next();
  if (!first) fail<FileError>("{}: ends before the end of its first line, the header of a profile", name);
  const std::string first_place = lines.place();
  const Json header = parse_line(*first, first_place);
  const JsonField header_line(header, first_place);
  const std::string schema = header_line["schema"].text();
  if (schema != kStepSchema) fail<FileError>("{}: schema {}, expected {}", first_place, schema, kStepSchema);
  file.header = header_of(header_line["header"]);
  while (const auto line = lines.next()) {
    const std::string place = lines.place();
    const Json json = parse_line(*line, place);
    add_line(file, JsonField(json, place), place);
  }
  if (lines.rest_bytes() > 0) {
    file.note = fmt::format("the file ends within line {}: its {} bytes are left out", lines.number() + 1,
                            lines.rest_bytes());
  }
  return file;
}

ProfileFile read_profile(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) fail<FileError>("{}: cannot open: {}", path.string(), std::strerror(errno));
  if (std::filesystem::is_directory(path))
    fail<FileError>("{}: is a directory, expected a profile file", path.string());
  return read_profile(stream, path.string());
}

}  // namespace minfer
