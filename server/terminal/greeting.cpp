#include "server/terminal/greeting.h"

#include <string_view>

#include <boost/algorithm/string/replace.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/options/sizes.h"
#include "profiling/json/json_text.h"

namespace minfer {
namespace {

/// 12345 as 12,345.
std::string grouped(int64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3;)
    text.insert(at -= 3, 1, ',');
  return text;
}

/// The address for a client on this machine.
std::string local(const std::string& url) {
  return boost::replace_all_copy(boost::replace_all_copy(url, "//0.0.0.0:", "//127.0.0.1:"),
                                 "//[::]:", "//[::1]:");
}

std::string curl_command(const ServingFacts& facts) {
  std::string body;
  JsonText(body)
      .open('{')
      .field("model", std::string_view(facts.model_name))
      .field("prompt", std::string_view("Once upon a time"))
      .field("max_tokens", 40)
      .close('}');
  const char* key = facts.needs_key ? "-H \"Authorization: Bearer $MINFER_API_KEY\" " : "";
  boost::replace_all(body, "'", R"('\'')");
  return fmt::format("curl {}/v1/completions {}-d '{}'", local(facts.url), key, body);
}

/// Empty for a model without states.
std::string states(const EngineOptions& options, int64_t slot_bytes) {
  if (slot_bytes == 0) return "";
  const int64_t copies = options.num_state_copies.value_or(0);
  const auto mebibytes = [&](int64_t slots) {
    return grouped((slots * slot_bytes + (1 << 20) - 1) >> 20) + " MiB of ";
  };
  return mebibytes(options.num_state_slots) + "sequences that run, " +
         (copies == 0 ? "no copies: prefixes are not shared"
                      : mebibytes(copies) + grouped(copies) + " copies for the prefix cache");
}

}  // namespace

std::string greeting(const ServingFacts& facts) {
  std::string text = fmt::format("minfer {} serves {} ({}) on {}\n", MINFER_VERSION, facts.model_name,
                                 facts.model, facts.url);
  const auto add = [&](std::string_view title, const std::string& fact) {
    if (!fact.empty()) text += fmt::format("  {:<10} {}\n", title, fact);
  };
  const EngineOptions& options = facts.options;
  const BackendInfo& backend = facts.backend;
  add("device", fmt::format("{}: {}{}", backend.name, backend.device,
                            backend.name == "cpu" ? fmt::format(", {} threads", backend.threads) : ""));
  if (options.tensor_parallel_size > 1)
    add("ranks", fmt::format("{} share the model{}{}", options.tensor_parallel_size,
                             backend.all_reduce.empty() ? "" : "; ", backend.all_reduce));
  if (options.quantization)
    add("weights", fmt::format("of layers made {} at load", name(*options.quantization)));
  add("context", grouped(options.max_model_len) + " tokens, prompt and answer together");
  add("KV cache", fmt::format("{} tokens of all sequences together, as {} in blocks of {}",
                              grouped(kv_cache_tokens(options)), name(options.kv_cache_dtype.value()),
                              options.block_size));
  add("states", states(options, facts.state_slot_bytes));
  add("sequences", fmt::format("{} at once, {} more may wait", grouped(options.max_num_seqs),
                               grouped(facts.max_queue_size)));
  if (!facts.all_models.empty())
    add("models",
        fmt::format("{}, at most {} loaded at once", fmt::join(facts.all_models, ", "), facts.max_loaded));
  return text + fmt::format("The page of its steps is {}/; to ask it something:\n  {}\n", local(facts.url),
                            curl_command(facts));
}

}  // namespace minfer
