#include "server/terminal/greeting.h"

#include <string_view>

#include <boost/algorithm/string/replace.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "profiling/json/json_text.h"

namespace minfer {
namespace {

/// As one word of a shell's command line.
std::string shell_word(const std::string& text) {
  return fmt::format("'{}'", boost::replace_all_copy(text, "'", R"('\'')"));
}

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
  return fmt::format("curl {}/v1/completions {}-d {}", local(facts.url), key, shell_word(body));
}

/// Empty for a model without states.
std::string states(const ServingFacts& facts) {
  if (facts.state_bytes == 0) return "";
  const auto mebibytes = [](int64_t bytes) { return grouped((bytes + (1 << 20) - 1) >> 20); };
  const std::string copies =
      facts.state_copies == 0 ? "no copies: prefixes are not shared"
                              : fmt::format("{} MiB of {} copies for the prefix cache",
                                            mebibytes(facts.state_copy_bytes), grouped(facts.state_copies));
  return fmt::format("{} MiB of sequences that run, {}", mebibytes(facts.state_bytes), copies);
}

}  // namespace

std::string greeting(const ServingFacts& facts) {
  std::string text = fmt::format("minfer {} serves {} ({}) on {}\n", MINFER_VERSION, facts.model_name,
                                 facts.model, facts.url);
  const auto add = [&](std::string_view name, const std::string& fact) {
    if (!fact.empty()) text += fmt::format("  {:<10} {}\n", name, fact);
  };
  add("device", facts.device);
  if (facts.ranks > 1)
    add("ranks", fmt::format("{} share the model{}{}", facts.ranks, facts.all_reduce.empty() ? "" : "; ",
                             facts.all_reduce));
  if (!facts.quantization.empty())
    add("weights", fmt::format("of layers made {} at load", facts.quantization));
  add("context", grouped(facts.context) + " tokens, prompt and answer together");
  add("KV cache", fmt::format("{} tokens of all sequences together, as {} in blocks of {}",
                              grouped(facts.kv_tokens), facts.kv_type, facts.block_size));
  add("states", states(facts));
  add("sequences", fmt::format("{} at once, {} more may wait", grouped(facts.max_num_seqs),
                               grouped(facts.max_queue_size)));
  if (!facts.all_models.empty())
    add("models",
        fmt::format("{}, at most {} loaded at once", fmt::join(facts.all_models, ", "), facts.max_loaded));
  return text + fmt::format("The page of its steps is {}/; to ask it something:\n  {}\n", local(facts.url),
                            curl_command(facts));
}

}  // namespace minfer
