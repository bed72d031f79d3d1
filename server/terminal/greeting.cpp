#include "server/terminal/greeting.h"

#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "profiling/json/json_text.h"

namespace minfer {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

/// As one word of a shell's command line.
std::string quoted(std::string text) {
  replace_all(text, "'", R"('\'')");
  return fmt::format("'{}'", text);
}

/// 12345 as 12,345.
std::string grouped(int64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3;)
    text.insert(at -= 3, 1, ',');
  return text;
}

/// The address for a client on this machine.
std::string local(std::string url) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kAnyAddress{
      {{"//0.0.0.0:", "//127.0.0.1:"}, {"//[::]:", "//[::1]:"}}};
  for (const auto& [any, own] : kAnyAddress)
    replace_all(url, any, own);
  return url;
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
  return fmt::format("curl {}/v1/completions {}-d {}", local(facts.url), key, quoted(std::move(body)));
}

/// Nothing if they are as in the file.
std::string weights_line(const ServingFacts& facts) {
  if (facts.quantization.empty()) return "";
  return fmt::format("  weights    of layers made {} at load\n", facts.quantization);
}

/// Nothing if there is one.
std::string ranks_line(const ServingFacts& facts) {
  if (facts.ranks == 1) return "";
  return fmt::format("  ranks      {} share the model{}{}\n", facts.ranks,
                     facts.all_reduce.empty() ? "" : "; ", facts.all_reduce);
}

/// Empty for a model without states.
std::string states_line(const ServingFacts& facts) {
  if (facts.state_bytes == 0) return "";
  const auto mebibytes = [](int64_t bytes) { return grouped((bytes + (1 << 20) - 1) >> 20); };
  const std::string copies =
      facts.state_copies == 0 ? "no copies: prefixes are not shared"
                              : fmt::format("{} MiB of {} copies for the prefix cache",
                                            mebibytes(facts.state_copy_bytes), grouped(facts.state_copies));
  return fmt::format("  states     {} MiB of sequences that run, {}\n", mebibytes(facts.state_bytes), copies);
}

}  // namespace

std::string greeting(const ServingFacts& facts) {
  return fmt::format(
      "minfer {} serves {} ({}) on {}\n"
      "  device     {}\n"
      "{}{}"
      "  context    {} tokens, prompt and answer together\n"
      "  KV cache   {} tokens of all sequences together, as {} in blocks of {}\n"
      "{}"
      "  sequences  {} at once, {} more may wait\n"
      "The page of its steps is {}/; to ask it something:\n"
      "  {}\n",
      MINFER_VERSION, facts.model_name, facts.model, facts.url, facts.device, ranks_line(facts),
      weights_line(facts), grouped(facts.context), grouped(facts.kv_tokens), facts.kv_type, facts.block_size,
      states_line(facts), grouped(facts.max_num_seqs), grouped(facts.max_queue_size), local(facts.url),
      curl_command(facts));
}

}  // namespace minfer
