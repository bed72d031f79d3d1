#include "server/serving/profile_session.h"

#include <charconv>

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
          "only steps FIRST:LAST (from 0, warm-up excluded, both included), with detail per layer; without "
          "--profile-out the file is minfer-profile.jsonl")
      ->group(group);
  command.add_option("--profile-detail", detail, "op: ops summed over layers; layer: each one as well")
      ->check(CLI::IsMember({"op", "layer"}))
      ->group(group);
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
  return header;
}

ProfileSession::ProfileSession(const ProfileArgs& args, Engine& engine) : engine_(engine) {
  if (!args.wanted()) return;
  WriterOptions options;
  if (!args.range.empty()) std::tie(options.first_step, options.last_step) = parse_range(args.range);
  options.on_error = [](const std::string& message) {
    print_notice(fmt::format("minfer: warning: {}\n", message));
  };
  path_ = args.out.empty() ? kDefaultFile : args.out;
  const bool per_layer = args.detail.empty() ? !args.range.empty() : args.detail == "layer";
  writer_ = std::make_unique<ProfileWriter>(
      path_, make_profile_header(engine, per_layer ? ProfileDetail::layer : ProfileDetail::op),
      std::move(options));
  engine_.recorder().add_sink(*writer_);
}

ProfileSession::~ProfileSession() {
  if (!writer_) return;
  engine_.recorder().remove_sink(*writer_);
  const ProfileWriter::Stats stats = writer_->close();
  const std::string dropped = stats.dropped > 0 ? fmt::format(", {} dropped", stats.dropped) : "";
  print_notice(fmt::format("{}: {} steps{}; read it with: minfer profile report {}\n", path_, stats.written,
                           dropped, path_));
}

}  // namespace minfer
