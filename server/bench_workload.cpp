#include "server/bench_workload.h"

#include <cmath>
#include <fstream>
#include <limits>

#include <nlohmann/json.hpp>

namespace minfer {
namespace {

Request base_request(size_t index, std::vector<TokenId> prompt, int32_t output_len) {
  Request request;
  request.id = fmt::format("bench-{}", index);
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0.0f;
  request.sampling.ignore_eos = true;
  request.sampling.max_tokens = output_len;
  return request;
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

Request parse_line(const std::string& line, size_t index, const WorkloadOptions& options,
                   const Tokenizer& tokenizer) {
  const nlohmann::json entry = nlohmann::json::parse(line);
  const nlohmann::json& prompt = entry.at("prompt");
  std::vector<TokenId> tokens =
      prompt.is_string() ? tokenizer.encode(prompt.get<std::string>()) : prompt.get<std::vector<TokenId>>();
  Request request =
      base_request(index, std::move(tokens), integer_or(entry, "output_len", options.output_len));
  request.priority = integer_or(entry, "priority", request.priority);
  return request;
}

std::vector<Request> read_dataset(const WorkloadOptions& options, const Tokenizer& tokenizer) {
  std::ifstream file(options.dataset);
  if (!file) fail<FileError>("cannot read {}", options.dataset);
  const size_t wanted =
      options.num_prompts > 0 ? static_cast<size_t>(options.num_prompts) : std::numeric_limits<size_t>::max();
  std::vector<Request> requests;
  size_t number = 0;
  for (std::string line; requests.size() < wanted && std::getline(file, line);) {
    ++number;
    if (line.empty()) continue;
    try {
      requests.push_back(parse_line(line, requests.size(), options, tokenizer));
    } catch (const std::exception& error) {
      fail<FileError>("{}:{}: expected {{\"prompt\": TEXT or [ids], \"output_len\": N, \"priority\": N}}: {}",
                      options.dataset, number, error.what());
    }
  }
  if (requests.empty()) fail<FileError>("{}: holds no prompts", options.dataset);
  return requests;
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

std::vector<TimedRequest> make_workload(const WorkloadOptions& options, const Tokenizer& tokenizer) {
  std::mt19937_64 random(options.seed);
  std::vector<Request> requests;
  if (!options.dataset.empty()) {
    requests = read_dataset(options, tokenizer);
  } else {
    for (int32_t i = 0; i < options.num_prompts; ++i) {
      requests.push_back(base_request(
          static_cast<size_t>(i), random_tokens(tokenizer, options.input_len, random), options.output_len));
    }
  }
  std::exponential_distribution<double> gap(options.request_rate > 0.0 ? options.request_rate : 1.0);
  std::vector<TimedRequest> workload;
  double arrival_s = 0.0;
  for (Request& request : requests) {
    workload.push_back({std::move(request), arrival_s});
    if (options.request_rate > 0.0) arrival_s += gap(random);
  }
  return workload;
}

}  // namespace minfer
