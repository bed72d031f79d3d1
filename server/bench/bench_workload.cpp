#include "server/bench/bench_workload.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include <nlohmann/json.hpp>

#include "kernels/base/error.h"

namespace minfer {
namespace {

/// Words that most vocabularies have as one token.
constexpr std::string_view kWords[] = {
    "time",  "year",   "people", "way",     "day",     "man",     "thing",    "woman",    "life",   "child",
    "world", "school", "state",  "family",  "student", "group",   "country",  "problem",  "hand",   "part",
    "place", "case",   "week",   "company", "system",  "program", "question", "work",     "number", "night",
    "point", "home",   "water",  "room",    "mother",  "area",    "money",    "story",    "fact",   "month",
    "lot",   "right",  "study",  "book",    "eye",     "job",     "word",     "business", "issue",  "side",
    "kind",  "head",   "house",  "service", "friend",  "father",  "power",    "hour",     "game",   "line",
    "end",   "member", "law",    "car"};

std::string random_words(int32_t count, std::mt19937_64& random) {
  std::uniform_int_distribution<size_t> any(0, std::size(kWords) - 1);
  std::string words;
  for (int32_t i = 0; i < count; ++i)
    words += fmt::format("{}{}", i == 0 ? "" : " ", kWords[any(random)]);
  return words;
}

BenchPrompt random_prompt(const Tokenizer* tokenizer, int32_t count, std::mt19937_64& random) {
  if (tokenizer == nullptr) return {.text = random_words(count, random)};
  return {.tokens = random_tokens(*tokenizer, count, random)};
}

/// `first`, then `second`, which are both tokens or both text.
BenchPrompt joined(BenchPrompt first, const BenchPrompt& second) {
  first.tokens.insert(first.tokens.end(), second.tokens.begin(), second.tokens.end());
  if (!first.text.empty() && !second.text.empty()) first.text += ' ';
  first.text += second.text;
  return first;
}

/// Even between (1 - ratio) and (1 + ratio) times `length`, rounded outwards as vLLM does; at least 1.
int32_t random_length(int32_t length, double ratio, std::mt19937_64& random) {
  if (ratio == 0.0) return length;
  const auto low = static_cast<int32_t>(std::floor(length * (1.0 - ratio)));
  const auto high = static_cast<int32_t>(std::ceil(length * (1.0 + ratio)));
  return std::uniform_int_distribution<int32_t>(std::max(low, 1), high)(random);
}

std::vector<Conversation> random_conversations(const WorkloadOptions& options, const Tokenizer* tokenizer,
                                               std::mt19937_64& random) {
  const BenchPrompt prefix = random_prompt(tokenizer, options.prefix_len, random);
  std::vector<Conversation> workload(static_cast<size_t>(options.num_prompts));
  for (Conversation& conversation : workload) {
    for (int32_t turn = 0; turn < options.num_turns; ++turn) {
      const int32_t input_len = random_length(options.input_len, options.range_ratio, random);
      BenchPrompt prompt = random_prompt(tokenizer, input_len, random);
      conversation.turns.push_back({turn == 0 ? joined(prefix, prompt) : std::move(prompt),
                                    random_length(options.output_len, options.range_ratio, random)});
    }
  }
  return workload;
}

/// An integer field that may be absent. Unlike json::value, takes no fraction and nothing out of range.
int32_t integer_or(const nlohmann::json& entry, const char* field, int32_t otherwise) {
  const auto found = entry.find(field);
  if (found == entry.end()) return otherwise;
  const double value = found->is_number_integer() ? found->get<double>() : std::nan("");
  if (!(value >= INT32_MIN && value <= INT32_MAX)) {
    fail<FileError>("\"{}\" is {}, expected an integer of 32 bits", field, found->dump());
  }
  return static_cast<int32_t>(value);
}

Conversation parse_line(const std::string& line, const WorkloadOptions& options) {
  const nlohmann::json entry = nlohmann::json::parse(line);
  const nlohmann::json& value = entry.at("prompt");
  BenchPrompt prompt;
  if (value.is_string()) {
    prompt.text = value.get<std::string>();
  } else {
    prompt.tokens = value.get<std::vector<TokenId>>();
  }
  Conversation conversation;
  conversation.turns.push_back({std::move(prompt), integer_or(entry, "output_len", options.output_len)});
  conversation.priority = integer_or(entry, "priority", 0);
  return conversation;
}

std::vector<Conversation> read_dataset(const WorkloadOptions& options) {
  std::ifstream file(options.dataset);
  if (!file) fail<FileError>("cannot read {}", options.dataset);
  const size_t wanted =
      options.num_prompts > 0 ? static_cast<size_t>(options.num_prompts) : std::numeric_limits<size_t>::max();
  std::vector<Conversation> workload;
  size_t number = 0;
  for (std::string line; workload.size() < wanted && std::getline(file, line);) {
    ++number;
    if (line.empty()) continue;
    try {
      workload.push_back(parse_line(line, options));
    } catch (const std::exception& error) {
      fail<FileError>("{}:{}: expected {{\"prompt\": TEXT or [ids], \"output_len\": N, \"priority\": N}}: {}",
                      options.dataset, number, error.what());
    }
  }
  if (workload.empty()) fail<FileError>("{}: holds no prompts", options.dataset);
  return workload;
}

}  // namespace

std::vector<TokenId> random_tokens(const Tokenizer& tokenizer, int32_t count, std::mt19937_64& random) {
  std::uniform_int_distribution<TokenId> any(0, tokenizer.vocab_size() - 1);
  std::vector<TokenId> tokens;
  while (static_cast<int32_t>(tokens.size()) < count) {
    const TokenId token = any(random);
    if (!tokenizer.is_control(token)) tokens.push_back(token);
  }
  return tokens;
}

std::vector<double> arrival_times(size_t count, double rate, double burstiness, std::mt19937_64& random) {
  std::vector<double> times(count, 0.0);
  if (!std::isfinite(rate) || count == 0) return times;
  std::gamma_distribution<double> gap(burstiness, 1.0 / (burstiness * rate));
  double time_s = 0.0;
  for (double& arrival_s : times)
    arrival_s = time_s += gap(random);
  const double scale = time_s > 0.0 ? static_cast<double>(count) / rate / time_s : 0.0;
  for (double& arrival_s : times)
    arrival_s *= scale;
  return times;
}

std::vector<Conversation> make_workload(const WorkloadOptions& options, const Tokenizer* tokenizer) {
  std::mt19937_64 random(options.seed);
  std::vector<Conversation> workload =
      options.dataset.empty() ? random_conversations(options, tokenizer, random) : read_dataset(options);
  const std::vector<double> arrivals =
      arrival_times(workload.size(), options.request_rate, options.burstiness, random);
  for (size_t i = 0; i < workload.size(); ++i)
    workload[i].arrival_s = arrivals[i];
  return workload;
}

std::vector<Conversation> make_warmup(const WorkloadOptions& options,
                                      const std::vector<Conversation>& workload) {
  const Conversation first{
      .turns = {workload.front().turns.front()}, .arrival_s = 0.0, .priority = workload.front().priority};
  return std::vector<Conversation>(static_cast<size_t>(options.num_warmups), first);
}

}  // namespace minfer
