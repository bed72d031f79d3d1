#include "server/tune/replay_runner.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/base/error.h"
#include "server/tune/child_process.h"

namespace minfer {
namespace {

/// The number of requests from which on a median says something.
constexpr size_t kFewestRequests = 8;

std::string option_name(std::string_view name) {
  std::string option = "--" + std::string(name);
  std::ranges::replace(option, '_', '-');
  return option;
}

/// The last line of minfer's message at its end.
std::string last_line(std::string text) {
  constexpr std::string_view kError = "minfer: error: ";
  while (text.ends_with('\n'))
    text.pop_back();
  text = text.substr(text.rfind('\n') + 1);
  return text.starts_with(kError) ? text.substr(kError.size()) : text;
}

/// The options without those that a later option of the same name overrides.
std::vector<std::string> without(const std::vector<std::string>& options,
                                 const std::vector<std::string>& later) {
  const auto stem = [](std::string_view option) {
    return option.starts_with("--no-") ? "--" + std::string(option.substr(5)) : std::string(option);
  };
  std::vector<std::string> left;
  bool is_dropped = false;
  for (const std::string& option : options) {
    if (option.starts_with("--")) {
      is_dropped =
          std::ranges::any_of(later, [&](const std::string& other) { return stem(other) == stem(option); });
    }
    if (!is_dropped) left.push_back(option);
  }
  return left;
}

}  // namespace

std::vector<std::string> recorded_options(const ProfileHeader& header) {
  // The record's other values are measured, or follow from the model.
  static constexpr auto kValues = std::to_array<std::string_view>(
      {"max_model_len", "max_num_seqs", "max_num_batched_tokens", "tensor_parallel_size", "block_size",
       "num_blocks", "kv_cache_dtype", "quantization", "scheduling_policy", "target_itl_ms",
       "stream_interval", "num_state_copies", "speculative", "speculative_model", "num_speculative_tokens",
       "ngram_prompt_lookup_max", "ngram_prompt_lookup_min"});
  static constexpr std::array<std::string_view, 4> kFlags{"enable_prefix_caching", "cuda_graphs",
                                                          "enable_chunked_prefill", "adaptive_speculation"};
  std::vector<std::string> options{"--device", header.backend};
  if (header.backend == "cpu")
    options.insert(options.end(), {"--threads", std::to_string(header.threads)});
  else
    options.insert(options.end(), {"--dtype", std::string(name(header.activation_dtype))});
  for (const auto& [option, value] : header.options) {
    if (std::ranges::count(kValues, option) > 0) options.insert(options.end(), {option_name(option), value});
    if (std::ranges::count(kFlags, option) > 0)
      options.push_back(option_name(value == "true" ? option : "no_" + option));
  }
  return options;
}

ReplayRunner::ReplayRunner(Options options)
    : options_(std::move(options)), load_(read_recorded_load(options_.profile)) {
  model_ = options_.model.empty() ? load_.header.model : options_.model;
  if (model_ == "the embedded demo model") model_.clear();  // what runs where none is named
  const std::vector<EndedRequest>& requests = load_.requests;
  num_requests_ = requests.size();
  if (options_.run_s > 0.0) {
    const int64_t last_ns = requests.front().arrival_ns + static_cast<int64_t>(options_.run_s * 1e9);
    const auto end = std::ranges::upper_bound(requests, last_ns, {}, &EndedRequest::arrival_ns);
    num_requests_ =
        std::min(num_requests_, std::max(kFewestRequests, static_cast<size_t>(end - requests.begin())));
  }
}

nlohmann::json ReplayRunner::run(const std::vector<std::string>& options, double timeout_s) const {
  std::vector<std::string> arguments{"/proc/self/exe",
                                     "bench",
                                     "--replay",
                                     options_.profile,
                                     "--replay-speed",
                                     options_.speed,
                                     "--num-prompts",
                                     std::to_string(num_requests_),
                                     "--num-warmups",
                                     "1",
                                     "-o",
                                     "json"};
  const std::vector<std::string> recorded = without(recorded_options(load_.header), options);
  if (!model_.empty()) arguments.insert(arguments.end(), {"--model", model_});
  for (const std::vector<std::string>& more : {recorded, options, options_.bench})
    arguments.insert(arguments.end(), more.begin(), more.end());
  const ChildResult result = run_child(arguments, timeout_s);
  if (result.timed_out) fail("took longer than {:.0f} s", timeout_s);
  if (result.status != 0) fail("{}", last_line(result.errors));
  const nlohmann::json report = nlohmann::json::parse(result.output, nullptr, false);
  if (!report.is_array() || report.empty() || !report[0].contains("replay"))
    fail("minfer bench wrote no report: {}", last_line(result.errors));
  nlohmann::json figures = report[0]["replay"]["replayed"];
  figures["device"] = report[0]["replay"]["device"];
  if (report[0].contains("request_goodput")) figures["goodput"] = report[0]["request_goodput"];
  return figures;
}

std::string ReplayRunner::command_line(const std::vector<std::string>& options) const {
  const std::vector<std::string> recorded = without(recorded_options(load_.header), options);
  std::vector<std::string> words{"minfer", "serve"};
  if (!model_.empty()) words.push_back(model_);
  for (const std::vector<std::string>& more : {recorded, options})
    words.insert(words.end(), more.begin(), more.end());
  return fmt::format("{}", fmt::join(words, " "));
}

}  // namespace minfer
