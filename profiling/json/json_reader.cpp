#include "profiling/json/json_reader.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <unordered_map>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "profiling/json/json_field.h"
#include "profiling/json/lines.h"
#include "profiling/json/parsed_lines.h"

namespace minfer {
namespace {

/// Hands what lines say to a visitor.
class LineDispatcher {
 public:
  /// `name`: of the file, in errors.
  LineDispatcher(ProfileVisitor& visitor, std::string_view name) : visitor_(visitor), name_(name) {}

  void read_header(const ParsedLines::Line& header) {
    const std::string place = place_of(header);
    const JsonField field(header.json, place);
    const std::string schema = field["schema"].text();
    if (schema != kStepSchema) fail<FileError>("{}: schema {}, expected {}", place, schema, kStepSchema);
    visitor_.header(read_json<ProfileHeader>(field["header"]));
  }

  void read(const ParsedLines::Line& parsed) {
    const std::string place = place_of(parsed);
    const JsonField line(parsed.json, place);
    const std::string_view schema = line["schema"].raw_text();
    if (schema == kStepSchema) {
      read_step(line, num_launches_, step_);
      visitor_.step(step_);
      step_.kernels.reset();
    } else if (schema == kLaunchSchema) {
      read_launch(line);
    } else if (schema == kCountersSchema) {
      visitor_.counters(read_json<CounterWindow>(line));
    } else if (schema == kMemorySchema) {
      visitor_.memory(read_json<MemoryUse>(line["memory"]));
    } else if (schema == kRequestSchema) {
      visitor_.request(read_json<EndedRequest>(line));
    } else if (schema == kRankSchema) {
      visitor_.rank_step(read_json<RankStep>(line));
    } else if (schema == kHostSchema) {
      visitor_.host(read_json<HostSample>(line));
    } else if (schema == kDeviceSchema) {
      visitor_.device(read_json<DeviceSample>(line));
    } else if (schema == kTrialSchema) {
      visitor_.trial(read_json<KeptTrial>(line));
    } else if (schema != kKernelSchema) {
      fail<FileError>("{}: schema {}, expected {}, {}, {}, {}, {}, {}, {}, {}, {} or {}", place,
                      line["schema"].text(), kStepSchema, kLaunchSchema, kKernelSchema, kCountersSchema,
                      kMemorySchema, kRequestSchema, kRankSchema, kHostSchema, kDeviceSchema, kTrialSchema);
    } else if (line.find("range")) {
      visitor_.range(read_json<RangeLine>(line));
    } else if (line.find("traced_step")) {
      visitor_.traced_step(read_json<StepKernels>(line));
    } else {
      visitor_.kernel(read_json<KernelLine>(line));
    }
  }

 private:
  /// FILE:LINE. Throws if it is no JSON.
  std::string place_of(const ParsedLines::Line& line) const {
    std::string place = fmt::format("{}:{}", name_, line.number);
    if (!line.is_valid) fail<FileError>("{}: is no valid JSON", place);
    return place;
  }

  void read_launch(const JsonField& line) {
    const JsonField number = line["launch"];
    if (number.integer(0, 1 << 28) != num_launches_) number.expected(std::to_string(num_launches_));
    visitor_.launch(read_json<KernelLaunch>(line));
    ++num_launches_;
  }

  ProfileVisitor& visitor_;
  std::string_view name_;
  StepSummary step_;
  int32_t num_launches_ = 0;
};

/// Keeps everything.
class Collector final : public ProfileVisitor {
 public:
  void header(ProfileHeader header) override { file.header = std::move(header); }
  void launch(KernelLaunch launch) override { file.launches.push_back(std::move(launch)); }
  void step(StepSummary& step) override { file.steps.push_back(std::move(step)); }
  void range(RangeLine range) override { file.ranges.push_back(std::move(range)); }
  void traced_step(const StepKernels& step) override { file.traced.push_back(step); }
  void kernel(KernelLine kernel) override { file.kernels.push_back(std::move(kernel)); }
  void counters(CounterWindow window) override { file.counters.push_back(std::move(window)); }
  void request(EndedRequest request) override { file.requests.push_back(std::move(request)); }
  void rank_step(const RankStep& step) override { file.rank_steps.push_back(step); }
  void host(const HostSample& sample) override { file.host.push_back(sample); }
  void device(const DeviceSample& sample) override { file.devices.push_back(sample); }
  void trial(KeptTrial trial) override { file.trials.push_back(std::move(trial)); }
  void memory(MemoryUse memory) override { file.memory_at_end = std::move(memory); }

  /// Returns the file, with the result of read_profile(). Gives steps their kernels, since ranges come behind their steps.
  ProfileFile finish(std::string note) {
    file.note = std::move(note);
    std::unordered_map<int64_t, const StepKernels*> traced;
    for (const StepKernels& kernels : file.traced) {
      if (kernels.rank == 0) traced[kernels.step] = &kernels;
    }
    for (StepSummary& step : file.steps) {
      if (const auto found = traced.find(step.step); found != traced.end()) step.kernels = *found->second;
    }
    return std::move(file);
  }

  ProfileFile file;
};

}  // namespace

std::string read_profile(std::istream& stream, std::string_view name, ProfileVisitor& visitor) {
  ParsedLines lines(stream, name);
  LineDispatcher dispatcher(visitor, name);
  const ParsedLines::Line* line = lines.next();
  if (line == nullptr)
    fail<FileError>("{}: ends before the end of its first line, the header of a profile", name);
  dispatcher.read_header(*line);
  while ((line = lines.next()) != nullptr)
    dispatcher.read(*line);
  if (lines.rest_bytes() == 0) return {};
  return fmt::format("the file ends within line {}: its {} bytes are left out", lines.number() + 1,
                     lines.rest_bytes());
}

std::string read_profile(const std::filesystem::path& path, ProfileVisitor& visitor) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) fail<FileError>("{}: cannot open: {}", path.string(), std::strerror(errno));
  if (std::filesystem::is_directory(path))
    fail<FileError>("{}: is a directory, expected a profile file", path.string());
  return read_profile(stream, path.string(), visitor);
}

ProfileFile read_profile(std::istream& stream, std::string_view name) {
  Collector collector;
  return collector.finish(read_profile(stream, name, collector));
}

ProfileFile read_profile(const std::filesystem::path& path) {
  Collector collector;
  return collector.finish(read_profile(path, collector));
}

}  // namespace minfer
