#include "server/serving/profile/profile_session.h"

#include <algorithm>
#include <charconv>
#include <exception>
#include <limits>

#include "kernels/base/thread_pool.h"
#include "models/decoder/config/eagle_head.h"
#include "profiling/json/lines.h"
#include "server/terminal/terminal.h"

namespace minfer {
namespace {

constexpr int64_t kMostMargin = 1'000'000'000;
constexpr const char* kDefaultFile = "minfer-profile.jsonl";

}  // namespace

std::pair<int64_t, int64_t> parse_step_range(std::string_view option, const std::string& text) {
  int64_t first = 0;
  int64_t last = -1;
  const char* end = text.data() + text.size();
  const auto head = std::from_chars(text.data(), end, first);
  if (head.ec == std::errc() && head.ptr != end && *head.ptr == ':') {
    const auto tail = std::from_chars(head.ptr + 1, end, last);
    if (tail.ec == std::errc() && tail.ptr == end && first >= 0 && first <= last) return {first, last};
  }
  fail("{}: \"{}\" is not FIRST:LAST with FIRST <= LAST, e.g. 100:200", option, text);
}

void ProfileArgs::add_to(CLI::App& command) {
  const auto add = [&](const char* name, auto& target, const char* description) {
    return command.add_option(name, target, description)->group(kGroup);
  };
  add("--profile-out", out, "write a record of every step to this file (JSON Lines)");
  add("--profile-range", range,
      "record only steps FIRST:LAST (both included, from 0 after the warm-up), with detail per layer "
      "and, on a GPU, each kernel as traced by the driver (default --profile-out: minfer-profile.jsonl)");
  add("--profile-margin", margin,
      "also record this many steps before and after --profile-range, without tracing, to show its cost")
      ->check(CLI::Range(int64_t{0}, kMostMargin))
      ->needs("--profile-range");
  add("--profile-detail", detail, "op: ops summed over layers; layer: ops of each layer as well")
      ->check(CLI::IsMember({"op", "layer"}));
  command
      .add_flag(
          "--profile-counters", counters,
          "also read the GPU's hardware counters, in consecutive windows of some milliseconds: bytes "
          "that each op really moved, and how busy the GPU was (default --profile-out: minfer-profile.jsonl)")
      ->group(kGroup);
}

void ProfileArgs::add_counters_every(CLI::App& command) {
  command
      .add_option("--profile-counters-every", counters_every_s,
                  "seconds from the start of one window of hardware counters to the next")
      ->check(CLI::Range(0.1, 1e6))
      ->excludes("--profile-counters")
      ->group(kGroup);
}

ProfileHeader describe_engine(Engine& engine) {
  const BackendInfo info = engine.backend_info();
  const EngineOptions& options = engine.options();
  ProfileHeader header;
  header.version = MINFER_VERSION;
  header.model = engine.model().name();
  header.backend = info.name;
  header.device = info.device;
  header.threads = info.threads;
  header.cores = num_cores();
  header.activation_dtype = info.activation_dtype;
  header.cache_bytes = info.cache_bytes;
  const std::string quantization(options.quantization ? name(*options.quantization) : "none");
  header.options = {
      {"max_model_len", std::to_string(options.max_model_len)},
      {"max_num_seqs", std::to_string(options.max_num_seqs)},
      {"max_num_batched_tokens", std::to_string(options.max_num_batched_tokens)},
      {"tensor_parallel_size", std::to_string(options.tensor_parallel_size)},
      {"block_size", std::to_string(options.block_size)},
      {"num_blocks", std::to_string(options.num_blocks)},
      {"kv_cache_dtype", std::string(name(*options.kv_cache_dtype))},
      {"quantization", quantization},
      {"enable_prefix_caching", options.enable_prefix_caching ? "true" : "false"},
      {"cuda_graphs", options.cuda_graphs ? "true" : "false"},
      {"enable_chunked_prefill", options.enable_chunked_prefill ? "true" : "false"},
      {"scheduling_policy", std::string(name(options.policy))},
      {"target_itl_ms", options.target_itl_ms ? fmt::format("{}", *options.target_itl_ms) : "auto"},
      {"stream_interval", std::to_string(options.stream_interval)},
      {"seed", std::to_string(options.seed)}};
  if (options.is_recurrent) {
    header.options.emplace_back("is_recurrent", "true");
    header.options.emplace_back("num_state_copies", std::to_string(options.num_state_copies.value_or(0)));
  }
  if (const SpeculationOptions& drafts = options.speculation; drafts.method != SpeculationMethod::off) {
    const bool is_ngram = drafts.method == SpeculationMethod::ngram;
    const EagleHead* const head = engine.model().config().eagle.get();
    const char* const method = is_ngram ? "ngram" : drafts.draft_model || head ? "draft" : "mtp";
    header.options.insert(header.options.end(),
                          {{"speculative", method},
                           {"num_speculative_tokens", std::to_string(drafts.num_tokens)},
                           {"adaptive_speculation", drafts.adaptive ? "true" : "false"}});
    if (is_ngram) {
      header.options.emplace_back("ngram_prompt_lookup_max", std::to_string(drafts.ngram_max));
      header.options.emplace_back("ngram_prompt_lookup_min", std::to_string(drafts.ngram_min));
    } else if (drafts.draft_model) {
      header.options.emplace_back("speculative_model", drafts.draft_model->name());
    } else if (head != nullptr) {
      header.options.emplace_back("speculative_model", head->file);
    }
  }
  if (!info.all_reduce.empty()) header.options.emplace_back("all_reduce", info.all_reduce);
  return header;
}

ProfileHeader make_profile_header(Engine& engine, ProfileDetail detail) {
  ProfileHeader header = describe_engine(engine);
  header.ceilings = device_ceilings(engine.backend_info(), MINFER_VERSION);
  stamp_clocks(header);
  header.detail = detail;
  header.ops.assign(engine.ops().begin(), engine.ops().end());
  header.launches = engine.launches();
  header.memory = engine.memory_use();
  return header;
}

void add_memory_at_end(ProfileWriter& writer, Engine& engine) noexcept {
  try {
    const MemoryUse memory = engine.memory_use();
    if (memory.total_bytes == 0) return;
    std::string line;
    append_memory_line(line, memory, now_ns());
    writer.add_line(std::move(line));
  } catch (const std::exception&) {  // a device that failed: the profile goes without
  }
}

ProfileSession::ProfileSession(const ProfileArgs& args, Engine& engine) : engine_(engine) {
  if (!args.wanted()) return;
  WriterOptions options;
  if (!args.range.empty())
    std::tie(options.first_step, options.last_step) = parse_step_range("--profile-range", args.range);
  const int64_t first_step = options.first_step, last_step = options.last_step;
  options.first_step = std::max<int64_t>(0, first_step - args.margin);
  options.last_step = last_step + std::min(args.margin, std::numeric_limits<int64_t>::max() - last_step);
  options.host = &engine_.host_sampler();
  options.devices = engine_.device_sampler();
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
  ProfileHeader header = make_profile_header(engine, per_layer ? ProfileDetail::layer : ProfileDetail::op);
  header.asked = {.kernels = !args.range.empty() && engine.can_trace(), .counters = args.wants_counters()};
  ceilings_key_ = ceilings_key(engine.backend_info(), MINFER_VERSION);
  writer_ = std::make_unique<ProfileWriter>(path_, std::move(header), std::move(options));
  engine_.recorder().add_sink(*writer_);
  if (args.wants_counters()) collect_counters(args, first_step, last_step);
  if (args.range.empty()) return;
  engine_.set_profile_range({.first_step = first_step,
                             .last_step = last_step,
                             .on_trace = [this](RangeTrace range) { writer_->add_range(std::move(range)); },
                             .on_end = [this] { end_memory(); }});
}

void ProfileSession::collect_counters(const ProfileArgs& args, int64_t first_step, int64_t last_step) {
  const auto every = std::chrono::milliseconds(static_cast<int64_t>(args.counters_every_s * 1e3));
  collector_ = std::make_unique<CounterCollector>(
      engine_.counters(), CollectorOptions{.every = every, .first_step = first_step, .last_step = last_step},
      [this](const CounterWindow& window) {
        if (window.error.empty()) ++num_windows_;
        if (!window.error.empty()) print_notice(fmt::format("minfer: warning: {}\n", window.error));
        latest_counters_.add(window);
        std::string line;
        append_line(line, window);
        writer_->add_line(std::move(line));
      });
  engine_.recorder().add_sink(*collector_);
  engine_.watch_rank_stamps(collector_.get());
}

void ProfileSession::end_memory() noexcept {
  if (!std::exchange(has_memory_at_end_, true)) add_memory_at_end(*writer_, engine_);
}

ProfileSession::~ProfileSession() {
  if (!writer_) return;
  if (collector_) {
    engine_.watch_rank_stamps(nullptr);
    engine_.recorder().remove_sink(*collector_);
  }
  collector_.reset();  // before the writer, to which it gives its last window
  engine_.cut_profile_range();
  end_memory();
  engine_.recorder().remove_sink(*writer_);
  const ProfileWriter::Stats stats = writer_->close();
  if (stats.beat_ceilings) measure_ceilings_again(ceilings_key_);
  const std::string dropped = stats.dropped > 0 ? fmt::format(", {} dropped", stats.dropped) : "";
  const std::string lines =
      stats.dropped_lines > 0 ? fmt::format(", {} other lines dropped", stats.dropped_lines) : "";
  const std::string windows = num_windows_ > 0 ? fmt::format(", {} windows of counters", num_windows_) : "";
  print_notice(fmt::format("{}: {} steps{}{}{}{}; read it with: minfer profile report {}\n", path_,
                           stats.written, dropped, traced_, windows, lines, path_));
}

}  // namespace minfer
