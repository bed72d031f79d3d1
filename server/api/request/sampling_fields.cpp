// How tokens are drawn and what ends an answer. Ranges are OpenAI's where it has the field, else what SamplingParams takes.
#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "models/gguf/printable.h"
#include "server/api/request/request_fields.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

/// Below this a draw is greedy: the most likely token's share rounds to one.
constexpr float kGreedyTemperature = 1e-5f;

void take_number(JsonFields& fields, const char* name, double low, double high, float& into) {
  if (const std::optional<double> value = fields.number(name, low, high)) into = static_cast<float>(*value);
}

void take_flag(JsonFields& fields, const char* name, bool& into) {
  into = fields.boolean(name).value_or(into);
}

/// A token id as the name of a JSON member: digits alone, without leading zeros.
TokenId read_bias_token(const std::string& name, int32_t vocab_size) {
  TokenId token = -1;
  const char* end = name.data() + name.size();
  const auto [stop, failed] = std::from_chars(name.data(), end, token);
  const bool canonical = failed == std::errc{} && stop == end && std::to_string(token) == name;
  if (!canonical || token < 0 || token >= vocab_size) {
    throw bad_request("logit_bias", fmt::format("logit_bias: \"{}\", expected a token id from 0 to {}",
                                                printable(name, 60), vocab_size - 1));
  }
  return token;
}

std::vector<LogitBias> read_logit_bias(JsonFields& fields, int32_t vocab_size) {
  std::vector<LogitBias> biases;
  const Json* object = fields.object("logit_bias");
  if (object == nullptr) return biases;
  for (const auto& [name, value] : object->items()) {
    const TokenId token = read_bias_token(name, vocab_size);
    biases.push_back({token, static_cast<float>(read_number(value, "logit_bias." + name, -100.0, 100.0))});
  }
  return biases;
}

std::string read_stop_string(const Json& value, const std::string& path, const ApiLimits& limits) {
  const std::string& text = read_text(value, path);
  if (text.empty()) throw bad_request(path, path + ": an empty string would end every answer at once");
  if (text.size() > static_cast<size_t>(limits.max_stop_bytes)) {
    throw bad_request(
        path, fmt::format("{}: {} bytes, expected at most {}", path, text.size(), limits.max_stop_bytes));
  }
  return text;
}

void check_count(const std::string& path, size_t count, int32_t most) {
  if (count > static_cast<size_t>(most)) {
    throw bad_request(path, fmt::format("{}: {} entries, expected at most {}", path, count, most));
  }
}

/// -1 and 0 switch it off, as does a value that keeps the whole vocabulary.
int32_t read_top_k(JsonFields& fields, int32_t vocab_size) {
  const int64_t top_k = fields.integer("top_k", -1, INT32_MAX).value_or(0);
  return top_k >= vocab_size ? 0 : static_cast<int32_t>(std::max<int64_t>(top_k, 0));
}

}  // namespace

std::vector<std::string> read_stop_strings(JsonFields& fields, std::string_view name,
                                           const ApiLimits& limits) {
  const Json* stop = fields.any(name);
  if (stop == nullptr) return {};
  const std::string path = fields.path(name);
  if (stop->is_string()) return {read_stop_string(*stop, path, limits)};
  if (!stop->is_array()) throw wrong_value(path, *stop, "a string or an array of strings");
  check_count(path, stop->size(), limits.max_stop_strings);
  std::vector<std::string> texts;
  for (size_t i = 0; i < stop->size(); ++i)
    texts.push_back(read_stop_string((*stop)[i], fmt::format("{}[{}]", path, i), limits));
  return texts;
}

std::vector<TokenId> read_token_ids(const Json& list, const std::string& path, int32_t vocab_size) {
  if (!list.is_array()) throw wrong_value(path, list, "an array of token ids");
  std::vector<TokenId> ids;
  ids.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const Json& value = list[i];
    // An element's name is made only for a message: lists are long.
    if (value.is_number_unsigned() && value.get<uint64_t>() < static_cast<uint64_t>(vocab_size)) {
      ids.push_back(value.get<TokenId>());
    } else {
      ids.push_back(
          static_cast<TokenId>(read_integer(value, fmt::format("{}[{}]", path, i), 0, vocab_size - 1)));
    }
  }
  return ids;
}

void read_sampling(JsonFields& fields, const ApiContext& context, SamplingParams& sampling) {
  take_number(fields, "temperature", 0.0, 2.0, sampling.temperature);
  if (sampling.temperature < kGreedyTemperature) sampling.temperature = 0.0f;
  take_number(fields, "top_p", 0.0, 1.0, sampling.top_p);
  if (sampling.top_p == 0.0f) throw fields.error("top_p", "0, expected a number above 0, at most 1");
  sampling.top_k = read_top_k(fields, context.vocab_size);
  take_number(fields, "min_p", 0.0, 1.0, sampling.min_p);
  take_number(fields, "repetition_penalty", 0.01, 100.0, sampling.repetition_penalty);
  take_number(fields, "presence_penalty", -2.0, 2.0, sampling.presence_penalty);
  take_number(fields, "frequency_penalty", -2.0, 2.0, sampling.frequency_penalty);
  sampling.logit_bias = read_logit_bias(fields, context.vocab_size);
  if (const std::optional<int64_t> seed = fields.integer("seed", INT64_MIN, INT64_MAX)) {
    sampling.seed = static_cast<uint64_t>(*seed);
  }
  sampling.stop = read_stop_strings(fields, "stop", context.limits);
  if (const Json* ids = fields.array("stop_token_ids")) {
    check_count("stop_token_ids", ids->size(), context.limits.max_stop_tokens);
    sampling.stop_token_ids = read_token_ids(*ids, "stop_token_ids", context.vocab_size);
  }
  take_flag(fields, "include_stop_str_in_output", sampling.include_stop_in_output);
  take_flag(fields, "ignore_eos", sampling.ignore_eos);
  take_flag(fields, "skip_special_tokens", sampling.skip_special_tokens);
}

}  // namespace minfer
