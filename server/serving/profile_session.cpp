#include "server/serving/profile_session.h"

#include <charconv>

#include "profiling/json/counters_json.h"
#include "server/commands/terminal.h"

namespace minfer {
namespace {

constexpr const char* kDefaultFile = "minfer-profile.jsonl";

/// "A:B" with 0 <= A <= B.
std::pair<int64_t, int64_t> parse_range(const std::string& text) {
  int64_t first = 0;
  int64_t last = -1;
  const char* end = text.data() + text.size();
  const auto head = std::from_chars(text.data(), end, first);
  if (head.ec == std::errc() && head.ptr != end && *head.ptr == ':') {
    const auto tail = std::from_chars(head.ptr + 1, end, last);
    if (tail.ec == std::errc() && tail.ptr == end && first >= 0 && first <= last) return {first, last};
  }
  fail("--profile-range: \"{}\" is not FIRST:LAST with FIRST <= LAST, e.g. 100:200", text);
}

}  // namespace

void ProfileArgs::add_to(CLI::App& command) {
  const std::string group = kGroup;
  command.add_option("--profile-out", out, "write a record of every step to this file (JSON Lines)")
      ->group(group);
  command
      .add_option(
          "--profile-range", range,
          "only steps FIRST:LAST (from 0, warm-up excluded, both included), with detail per layer and, on a "
          "GPU, "
          "each kernel as the driver traces it; without --profile-out the file is minfer-profile.jsonl")
      ->group(group);
  command.add_option("--profile-detail", detail, "op: ops summed over layers; layer: each one as well")
      ->check(CLI::IsMember({"op", "layer"}))
      ->group(group);
  command
      .add_flag("--profile-counters", counters,
                "also read the GPU's hardware counters, in windows of some milliseconds one after the other: "
                "bytes that "
                "each op really moved, and how busy the GPU was; without --profile-out the file is "
                "minfer-profile.jsonl")
      ->group(group);
}

void ProfileArgs::add_counters_every(CLI::App& command) {
  command
      .add_option("--profile-counters-every", counters_every_s,
                  "read hardware counters in one window every so many seconds")
      ->check(CLI::Range(0.1, 1e6))
      ->excludes("--profile-counters")
      ->group(kGroup);
}

ProfileHeader make_profile_header(Engine& engine, ProfileDetail detail) {
  const BackendInfo info = engine.backend_info();
  const EngineOptions& options = engine.options();
  ProfileHeader header;
  header.version = MINFER_VERSION;
  header.model = engine.model().name();
  header.backend = info.name;
  header.device = info.device;
  header.threads = info.threads;
  header.activation_dtype = info.activation_dtype;
  header.ceilings = device_ceilings(info, MINFER_VERSION);
  header.options = {{"max_model_len", std::to_string(options.max_model_len)},
                    {"max_num_seqs", std::to_string(options.max_num_seqs)},
                    {"max_num_batched_tokens", std::to_string(options.max_num_batched_tokens)},
                    {"block_size", std::to_string(options.block_size)},
                    {"num_blocks", std::to_string(options.num_blocks)},
                    {"kv_cache_dtype", std::string(name(*options.kv_cache_dtype))},
                    {"enable_prefix_caching", options.enable_prefix_caching ? "true" : "false"},
                    {"enable_chunked_prefill", options.enable_chunked_prefill ? "true" : "false"},
                    {"scheduling_policy", options.policy == SchedulingPolicy::fcfs ? "fcfs" : "priority"},
                    {"stream_interval", std::to_string(options.stream_interval)},
                    {"seed", std::to_string(options.seed)}};
  stamp_clocks(header);
  header.detail = detail;
  header.ops.assign(engine.ops().begin(), engine.ops().end());
  header.launches = engine.launches();
  header.memory = engine.memory_use();
  return header;
}

ProfileSession::ProfileSession(const ProfileArgs& args, Engine& engine) : engine_(engine) {
  if (!args.wanted()) return;
  WriterOptions options;
  if (!args.range.empty()) std::tie(options.first_step, options.last_step) = parse_range(args.range);
  const int64_t first_step = options.first_step, last_step = options.last_step;
  options.on_error = [](const std::string& message) {
    print_notice(fmt::format("minfer: warning: {}\n", message));
  };
  options.on_range = [this](const RangeLine& range) {
    if (range.error.empty()) {
      traced_ = fmt::format(", {} kernels{}", range.kernels,
                            range.dropped > 0 ? fmt::format(" ({} records dropped)", range.dropped) : "");
    } else {
      print_notice(fmt::format("minfer: warning: kernels of the range are not traced: {}\n", range.error));
    }
  };
  path_ = args.out.empty() ? kDefaultFile : args.out;
  const bool per_layer = args.detail.empty() ? !args.range.empty() : args.detail == "layer";
  writer_ = std::make_unique<ProfileWriter>(
      path_, make_profile_header(engine, per_layer ? ProfileDetail::layer : ProfileDetail::op),
      std::move(options));
  engine_.recorder().add_sink(*writer_);
  if (args.wants_counters()) collect_counters(args, first_step, last_step);
  if (args.range.empty()) return;
  engine_.set_profile_range({.first_step = first_step,
                             .last_step = last_step,
                             .on_trace = [this](RangeTrace range) { writer_->add_range(std::move(range)); }});
}

void ProfileSession::collect_counters(const ProfileArgs& args, int64_t first_step, int64_t last_step) {
  const auto every = std::chrono::milliseconds(static_cast<int64_t>(args.counters_every_s * 1e3));
  collector_ = std::make_unique<CounterCollector>(
      engine_.counters(), engine_.ops(),
      CollectorOptions{.every = every, .first_step = first_step, .last_step = last_step},
      [this](const CounterWindow& window) { write(window); });
  engine_.recorder().add_sink(*collector_);
}

void ProfileSession::write(const CounterWindow& window) {
  if (window.error.empty()) ++num_windows_;
  if (!window.error.empty()) print_notice(fmt::format("minfer: warning: {}\n", window.error));
  latest_counters_.add(window);
  std::string line;
  append_counters_line(line, window);
  writer_->add_line(std::move(line));
}

ProfileSession::~ProfileSession() {
  if (!writer_) return;
  if (collector_) engine_.recorder().remove_sink(*collector_);
  collector_.reset();  // before the writer, to which it gives its last window
  engine_.cut_profile_range();
  engine_.recorder().remove_sink(*writer_);
  const ProfileWriter::Stats stats = writer_->close();
  const std::string dropped = stats.dropped > 0 ? fmt::format(", {} dropped", stats.dropped) : "";
  const std::string windows = num_windows_ > 0 ? fmt::format(", {} windows of counters", num_windows_) : "";
  print_notice(fmt::format("{}: {} steps{}{}{}; read it with: minfer profile report {}\n", path_,
                           stats.written, dropped, traced_, windows, path_));
}

}  // namespace minfer
