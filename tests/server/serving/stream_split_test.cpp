// However a text is cut into tokens, and tokens into events, the stream has the text of the answer
// in one piece.
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "models/tokenizer/utf8.h"
#include "tests/support/random_operations.h"
#include "tests/support/server/client_swarm.h"
#include "tests/support/server/test_server.h"

namespace minfer {
namespace {

using nlohmann::json;
using test::ScriptedServing;
using test::TestServer;

constexpr int32_t kScriptTokens = 1000;
constexpr int32_t kStreamTokens = 50;
constexpr int kIntervals[] = {1, 2, 3, 16};

/// Tokens of characters of one to four bytes, mostly one token a byte, with pieces and bytes that are no
/// UTF-8 among them.
std::vector<TokenId> random_script(std::mt19937& random, int32_t vocab_size) {
  const std::string characters[] = {"a", "b", " ", "é",  "ß",    "中",       "文",
                                    "!", "😀", "𝄞", "ab", "\xff", "\xe4\xb8", "\x80"};
  const auto first_byte = TokenId{3}, first_piece = TokenId{259};
  std::vector<TokenId> script;
  while (script.size() < kScriptTokens + kStreamTokens) {
    if (random() % 8 == 0) {
      script.push_back(first_piece +
                       static_cast<TokenId>(random() % static_cast<uint32_t>(vocab_size - first_piece)));
      continue;
    }
    for (const char c : characters[random() % std::size(characters)])
      script.push_back(first_byte + static_cast<unsigned char>(c));
  }
  return script;
}

class StreamSplitTest : public testing::Test {
 protected:
  StreamSplitTest() {
    const int32_t vocab_size = test::open_scripted_model()->config().vocab_size;
    ScriptedServing serving;
    serving.engine.max_model_len = kScriptTokens + kStreamTokens;
    // A prompt of n tokens is answered with the script from token n on.
    serving.script = [script = random_script(random_, vocab_size)](int64_t position) {
      return script[static_cast<size_t>(position)];
    };
    server_ = std::make_unique<TestServer>(serving);
  }

  static std::string request(int32_t prompt_tokens, bool stream, const json& more) {
    json body{{"model", "scripted"},
              {"prompt", std::vector<TokenId>(static_cast<size_t>(prompt_tokens), 70)},
              {"max_tokens", kStreamTokens},
              {"ignore_eos", true},
              {"stream", stream}};
    body.update(more);
    return test::completion_request(body.dump(), "Connection: close\r\n");
  }

  /// Sends the same request whole, then streamed at each interval. Returns text and finish reason of each.
  std::vector<StreamedText> ask(int32_t prompt_tokens, const json& more) {
    std::vector<SwarmClient> clients{{.request = request(prompt_tokens, false, more)}};
    for (const int interval : kIntervals) {
      json with_interval = more;
      with_interval["stream_interval"] = interval;
      clients.push_back({.request = request(prompt_tokens, true, with_interval)});
    }
    run_swarm(server_->port(), clients);
    const json whole = json::parse(parse_response(clients[0].received).body)["choices"][0];
    std::vector<StreamedText> texts{{.text = whole["text"], .finish = whole["finish_reason"], .done = true}};
    for (size_t i = 1; i < clients.size(); ++i)
      texts.push_back(parse_events(parse_response(clients[i].received).body));
    return texts;
  }

  void expect_alike(const std::vector<StreamedText>& texts, int32_t prompt_tokens) {
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_TRUE(texts[i].done) << prompt_tokens;
      EXPECT_EQ(texts[i].text, texts[0].text) << prompt_tokens << " at interval " << i;
      EXPECT_EQ(texts[i].finish, texts[0].finish) << prompt_tokens << " at interval " << i;
      EXPECT_EQ(replace_invalid_utf8(texts[i].text), texts[i].text);
    }
  }

  /// One to four whole characters from `text`.
  std::string random_part(const std::string& text) {
    std::vector<size_t> begins;
    for (size_t i = 0; i < text.size(); ++i)
      if ((text[i] & 0xC0) != 0x80) begins.push_back(i);
    begins.push_back(text.size());
    const size_t first = random_() % (begins.size() - 1);
    const size_t last = std::min(first + 1 + random_() % 4, begins.size() - 1);
    return text.substr(begins[first], begins[last] - begins[first]);
  }

  std::mt19937 random_{static_cast<uint32_t>(test::first_seed())};
  std::unique_ptr<TestServer> server_;
};

TEST_F(StreamSplitTest, StreamedEqualsWholeForUtf8AndStopStrings) {
  const int num_cases = test::soaking() ? 2000 : 60;
  int num_stopped = 0;
  for (int i = 0; i < num_cases; ++i) {
    const auto prompt_tokens = static_cast<int32_t>(1 + random_() % (kScriptTokens - 1));
    const std::vector<StreamedText> texts = ask(prompt_tokens, json::object());
    expect_alike(texts, prompt_tokens);
    const std::string stop = random_part(texts[0].text);
    const std::vector<StreamedText> stopped = ask(prompt_tokens, {{"stop", stop}});
    expect_alike(stopped, prompt_tokens);
    if (stopped[0].finish != "stop") continue;
    ++num_stopped;
    EXPECT_EQ(stopped[0].text, texts[0].text.substr(0, texts[0].text.find(stop))) << stop;
  }
  EXPECT_GT(num_stopped, num_cases * 9 / 10);
}

}  // namespace
}  // namespace minfer
