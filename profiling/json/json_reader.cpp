#include "profiling/json/json_reader.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>

#include "kernels/error.h"
#include "profiling/json/json_field.h"

namespace minfer {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxLineBytes = 8u << 20;
constexpr size_t kChunkBytes = 64u << 10;

template <class Enum, size_t N>
Enum one_of(const JsonField& field, const std::array<Enum, N>& values) {
  const std::string text = field.text();
  std::string names;
  for (const Enum value : values) {
    if (text == name(value)) return value;
    names += (names.empty() ? "" : ", ") + std::string(name(value));
  }
  field.expected("one of " + names);
}

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

ProfileHeader header_of(const JsonField& field) {
  ProfileHeader header;
  header.version = field["version"].text();
  header.model = field["model"].text();
  header.backend = field["backend"].text();
  header.device = field["device"].text();
  header.threads = field["threads"].integer<int32_t>();
  header.detail = one_of(field["detail"], std::array{ProfileDetail::op, ProfileDetail::layer});
  const JsonField ceilings = field["ceilings"];
  header.ceilings = {ceilings["read_gbps"].number(), ceilings["gflops"].number()};
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

PhaseTime phase_time_of(const std::optional<JsonField>& field) {
  if (!field) return {};
  return {(*field)["us"].number(), (*field)["tokens"].integer<int32_t>()};
}

OpSummary op_summary_of(const JsonField& field) {
  OpSummary op;
  op.op = field["op"].text();
  op.phase = phase_of(field["phase"]);
  op.calls = field["calls"].integer<int32_t>();
  op.us = field["us"].number();
  op.bytes = field["bytes"].integer<int64_t>();
  op.flops = field["flops"].integer<int64_t>();
  op.floor_us = field["roofline"].number() * op.us;
  op.bound = one_of(field["bound"], std::array{Bound::unknown, Bound::memory, Bound::compute});
  return op;
}

LayerOp layer_op_of(const JsonField& field) {
  return {field["layer"].integer<int32_t>(-1), field["op"].text(), phase_of(field["phase"]),
          field["us"].number()};
}

StepSummary step_of(const JsonField& field) {
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
    step.ops.push_back(op_summary_of(ops[i]));
  if (const auto layers = field.find("layers")) {
    for (size_t i = 0; i < layers->size(); ++i)
      step.layers.push_back(layer_op_of((*layers)[i]));
  }
  step.attributed = field["attributed"].number();
  step.dropped = static_cast<uint64_t>(field["dropped"].integer<int64_t>());
  const JsonField requests = field["requests"];
  for (size_t i = 0; i < requests.size(); ++i)
    step.requests.push_back(requests[i].text());
  return step;
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
  const JsonField field(json, place);
  const std::string schema = field["schema"].text();
  if (schema != kStepSchema) fail<FileError>("{}: schema {}, expected {}", place, schema, kStepSchema);
  return json;
}

}  // namespace

ProfileFile read_profile(std::istream& stream, std::string_view name) {
  Lines lines(stream, name);
  ProfileFile file;
  const auto first = lines.next();
  if (!first) fail<FileError>("{}: ends before the end of its first line, the header of a profile", name);
  const std::string first_place = lines.place();
  const Json header = parse_line(*first, first_place);
  file.header = header_of(JsonField(header, first_place)["header"]);
  while (const auto line = lines.next()) {
    const std::string place = lines.place();
    const Json step = parse_line(*line, place);
    file.steps.push_back(step_of(JsonField(step, place)));
  }
  if (lines.rest_bytes() > 0) {
    file.note = fmt::format("the file ends within line {}: its {} bytes are left out", file.steps.size() + 2,
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
