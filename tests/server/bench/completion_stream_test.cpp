// The results that a load test reads from the streams of different servers.
#include "server/bench/completion_stream.h"

#include <gmock/gmock.h>

#include "tests/support/models/text_splits.h"

namespace minfer {
namespace {

using testing::ElementsAre;

/// Feeds the events one at a time, every 10 ns from 10 ns on, and ends the response.
RequestRecord read(bool is_chat, const std::vector<std::string>& events, int status = 200,
                   const std::string& error = "") {
  bool is_done = false;
  CompletionStream stream(is_chat, true, [&] { is_done = true; });
  stream.record().start_ns = 5;
  if (status != 0) stream.on_status(status);
  int64_t time_ns = 0;
  for (const std::string& event : events)
    stream.on_body(event, time_ns += 10);
  stream.on_end(error);
  EXPECT_TRUE(is_done);
  return stream.record();
}

std::string data(const std::string& json) {
  return "data: " + json + "\n\n";
}

TEST(CompletionStream, CompletionsCountEveryChoice) {
  const RequestRecord record = read(
      false, {data(R"({"id":"c","choices":[{"index":0,"text":"He","logprobs":null}],"usage":null})"),
              data(R"({"choices":[{"text":"","index":0}]})"),
              data(R"({"choices":[{"text":"l\"lo\u00e9","finish_reason":"length","index":0}]})"),
              data(R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}})"),
              data("[DONE]")});
  EXPECT_EQ(record.error, "");
  EXPECT_THAT(record.chunk_ns, ElementsAre(10, 20, 30));
  EXPECT_EQ(record.text, "Hel\"lo\u00e9");
  EXPECT_EQ(record.input_tokens, 7);
  EXPECT_EQ(record.output_tokens, 5);
}

TEST(CompletionStream, ChatsCountWhatHoldsOutput) {
  const RequestRecord record =
      read(true, {data(R"({"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]})"),
                  data(R"({"choices":[{"index":0,"delta":{"role":"assistant","content":null}}]})"),
                  data(R"({"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]})"),
                  data(R"({"choices":[{"index":0,"delta":{"content":"a"}}]})"),
                  data(R"({"choices":[{"index":0,"delta":{"content":""}}]})"),
                  data(R"({"choices":[{"index":0,"delta":{"role":"assistant","content":"b"}}]})"),
                  data(R"({"choices":[{"index":0,"delta":{"tool_calls":[{"index":0}]}}]})"),
                  data(R"({"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]})"),
                  data(R"({"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":9}})")});
  EXPECT_EQ(record.error, "");
  EXPECT_THAT(record.chunk_ns, ElementsAre(30, 40, 50, 60, 70));
  EXPECT_EQ(record.text, "ab");
  EXPECT_EQ(record.output_tokens, 9);
}

TEST(CompletionStream, UsageOfEveryEventAndOfNone) {
  const RequestRecord running =
      read(false, {data(R"({"usage":{"completion_tokens":1,"prompt_tokens":2},"choices":[{"text":"a"}]})"),
                   data(R"({"usage":{"completion_tokens":4,"prompt_tokens":2},"choices":[{"text":"b"}]})")});
  EXPECT_EQ(running.output_tokens, 4);
  EXPECT_THAT(running.chunk_ns, ElementsAre(10, 20));
  const RequestRecord none =
      read(false, {data(R"({"choices":[{"text":"a"}]})"), data(R"({"choices":[{"text":"b"}]})")});
  EXPECT_EQ(none.output_tokens, 2) << "as many as responses";
  EXPECT_EQ(none.input_tokens, 0);
}

TEST(CompletionStream, AllWaysToCutAStreamGiveTheSame) {
  const std::string stream = data(R"({"choices":[{"text":"a"}]})") + ":\n\n" + data("[DONE]");
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    const RequestRecord record = read(false, {stream.substr(0, cut), stream.substr(cut)});
    EXPECT_EQ(record.text, "a") << cut;
    EXPECT_EQ(record.chunk_ns.size(), 1u) << cut;
  }
}

TEST(CompletionStream, FailuresHaveAKindAndWhatTheServerSaid) {
  const RequestRecord refused =
      read(false, {R"({"error":{"message":"queue full","type":"rate_limit"}})"}, 429);
  EXPECT_EQ(refused.error, "HTTP 429");
  EXPECT_EQ(refused.problem(), "HTTP 429: queue full");
  EXPECT_EQ(read(false, {"<html>"}, 500).problem(), "HTTP 500: <html>");
  const RequestRecord broken = read(false, {data(R"({"choices":[{"text":"a"}]})"),
                                            data(R"({"error":{"message":"out of luck","code":500}})")});
  EXPECT_EQ(broken.problem(), "error in the stream: out of luck");
  EXPECT_EQ(read(false, {data(R"({"error":"plain"})")}).problem(), "error in the stream: plain");
  EXPECT_EQ(read(false, {}, 0, "connection refused").problem(), "connection refused");
  EXPECT_EQ(read(false, {data(R"({"choices":[{"text":"a"}]})")}, 200, "timed out").problem(), "timed out");
  EXPECT_EQ(read(false, {data("[DONE]")}).problem(), "no output");
  EXPECT_EQ(read(false, {"{\"choices\":[{\"text\":\"not a stream\"}]}"}).problem(), "no output");
  EXPECT_EQ(read(false, {std::string(100000, 'x')}, 500).error_detail.size(), 200u);
}

TEST(CompletionStream, AnErrorOfNullIsNone) {
  EXPECT_EQ(read(false, {data(R"({"error":null,"choices":[{"text":"a"}]})")}).error, "");
}

}  // namespace
}  // namespace minfer
