#include "server/serving/profile/profile_session.h"

#include <algorithm>
#include <charconv>
#include <exception>
#include <limits>

#include "kernels/base/thread_pool.h"
#include "models/decoder/config/eagle_head.h"
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

ProfileRecording::ProfileRecording(Engine& engine, const std::filesystem::path& path, ProfileHeader header,
                                   Warn warn, const CollectorOptions& counters, LatestCounters* latest)
    : has_counters(header.asked.counters), engine_(engine) {
  WriterOptions options;
  options.host = &engine.host_sampler();
  options.devices = engine.device_sampler();
  options.on_error = [warn](const std::string& reason) { warn("the profile cannot be written", reason); };
  options.on_range = [this, warn](const RangeLine& given) {
    if (!given.error.empty()) warn(kNotTraced, given.error);
    range = given;
  };
  writer_ = std::make_unique<ProfileWriter>(path, std::move(header), std::move(options));
  if (!has_counters) return;
  const auto on_window = [this, warn, latest](const CounterWindow& window) {
    if (window.error.empty()) {
      ++counter_windows;
    } else {
      counters_error += (counters_error.empty() ? "" : "; ") + window.error;
      warn("no hardware counters", window.error);
    }
    if (latest != nullptr) latest->add(window);
    std::string line;
    append_line(line, window);
    writer_->add_line(std::move(line));
  };
  collector_ = std::make_unique<CounterCollector>(engine.counters(), counters, on_window);
}

void ProfileRecording::attach(int64_t first_step, int64_t last_step, int64_t margin) {
  writer_->set_steps(std::max<int64_t>(0, first_step - margin),
                     last_step + std::min(margin, std::numeric_limits<int64_t>::max() - last_step));
  engine_.recorder().add_sink(*writer_);
  if (!collector_) return;
  collector_->set_steps(first_step, last_step);
  engine_.recorder().add_sink(*collector_);
  engine_.watch_rank_stamps(collector_.get());
}

void ProfileRecording::add_memory() noexcept try {
  if (std::exchange(has_memory_, true)) return;
  const MemoryUse memory = engine_.memory_use();
  if (memory.total_bytes == 0) return;
  std::string line;
  append_memory_line(line, memory, now_ns());
  writer_->add_line(std::move(line));
} catch (const std::exception&) {  // a device that failed: the profile goes without
}

void ProfileRecording::detach() noexcept {
  add_memory();
  engine_.recorder().remove_sink(*writer_);
  if (!collector_) return;
  engine_.watch_rank_stamps(nullptr);
  engine_.recorder().remove_sink(*collector_);
}

ProfileWriter::Stats ProfileRecording::close() {
  collector_.reset();  // gives the writer its last window
  return writer_->close();
}

ProfileSession::ProfileSession(const ProfileArgs& args, Engine& engine) : engine_(engine) {
  if (!args.wanted()) return;
  int64_t first_step = 0, last_step = std::numeric_limits<int64_t>::max();
  if (!args.range.empty()) std::tie(first_step, last_step) = parse_step_range("--profile-range", args.range);
  path_ = args.out.empty() ? kDefaultFile : args.out;
  const bool per_layer = args.detail.empty() ? !args.range.empty() : args.detail == "layer";
  ProfileHeader header = make_profile_header(engine, per_layer ? ProfileDetail::layer : ProfileDetail::op);
  header.asked = {.kernels = !args.range.empty() && engine.can_trace(), .counters = args.wants_counters()};
  ceilings_key_ = ceilings_key(engine.backend_info(), MINFER_VERSION);
  const auto warn = [](std::string_view event, const std::string& reason) {
    // The other reasons say what they are about.
    const bool is_trace = event == ProfileRecording::kNotTraced;
    print_notice(fmt::format("minfer: warning: {}{}\n",
                             is_trace ? "kernels of the range are not traced: " : "", reason));
  };
  const auto every = std::chrono::milliseconds(static_cast<int64_t>(args.counters_every_s * 1e3));
  recording_ = std::make_unique<ProfileRecording>(engine, path_, std::move(header), warn,
                                                  CollectorOptions{.every = every}, &latest_counters_);
  recording_->attach(first_step, last_step, args.margin);
  if (args.range.empty()) return;
  engine.set_profile_range({.first_step = first_step,
                            .last_step = last_step,
                            .on_trace = [this](RangeTrace trace) { recording_->add_range(std::move(trace)); },
                            .on_end = [this] { recording_->add_memory(); }});
}

ProfileSession::~ProfileSession() {
  if (!recording_) return;
  engine_.cut_profile_range();
  recording_->detach();
  const ProfileWriter::Stats stats = recording_->close();
  if (stats.beat_ceilings) measure_ceilings_again(ceilings_key_);
  std::string more;
  if (stats.dropped > 0) more += fmt::format(", {} dropped", stats.dropped);
  if (const auto& range = recording_->range; range && range->error.empty()) {
    more += fmt::format(", {} kernels", range->kernels);
    if (range->dropped > 0) more += fmt::format(" ({} records dropped)", range->dropped);
  }
  if (recording_->counter_windows > 0)
    more += fmt::format(", {} windows of counters", recording_->counter_windows);
  if (stats.dropped_lines > 0) more += fmt::format(", {} other lines dropped", stats.dropped_lines);
  print_notice(fmt::format("{}: {} steps{}; read it with: minfer profile report {}\n", path_, stats.written,
                           more, path_));
}

}  // namespace minfer
