// The load generator against a server that follows a script, good or bad.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <numeric>

#include <gmock/gmock.h>

#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "server/bench/bench_load.h"
#include "tests/support/server/scripted_server.h"
#include "tests/support/wait.h"

namespace minfer {
namespace {

using Json = nlohmann::json;
using test::ScriptedServer;
using test::ServedRequest;
using testing::ElementsAre;
using testing::Ge;
using testing::HasSubstr;

RemoteOptions options_of(const ScriptedServer& server) {
  RemoteOptions options;
  options.base_url = server.url();
  options.model = "m";
  options.keep_text = true;
  return options;
}

std::vector<Conversation> prompts(size_t count, int32_t output_len = 3) {
  const BenchTurn turn{.prompt = {.tokens = {}, .text = "hello"}, .output_len = output_len};
  return std::vector<Conversation>(count, Conversation{.turns = {turn}});
}

/// Runs the workload against a script and returns the records.
std::vector<RequestRecord> run(test::Script script, const std::vector<Conversation>& workload,
                               int32_t max_concurrency = 0) {
  const ScriptedServer server(std::move(script));
  return RemoteLoad(options_of(server)).run(workload, max_concurrency).records;
}

RequestRecord run_one(test::Script script) {
  return run(std::move(script), prompts(1)).at(0);
}

/// The bodies of the requests that a server has received.
class Bodies {
 public:
  void add(const std::string& body) {
    const std::lock_guard lock(mutex_);
    bodies_.push_back(Json::parse(body));
  }
  std::vector<Json> all() const { return bodies_; }

 private:
  std::mutex mutex_;
  std::vector<Json> bodies_;
};

TEST(RemoteLoad, MeasuresAStream) {
  const RequestRecord record = run_one([](ServedRequest& request) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    stream_completion(request, 4, 20);
    return true;
  });
  EXPECT_EQ(record.problem(), "");
  EXPECT_EQ(record.text, " t0 t1 t2 t3");
  EXPECT_EQ(record.input_tokens, 11);
  EXPECT_EQ(record.output_tokens, 4);
  // The server sends nothing sooner. How much later each piece is read depends on the machine.
  EXPECT_GE(record.ttft_ms(), 30.0);
  EXPECT_GE(record.e2el_ms(), 90.0);
  const std::vector<double> itl_ms = record.itl_ms();
  EXPECT_THAT(itl_ms, ElementsAre(Ge(0.0), Ge(0.0), Ge(0.0)));
  const double last_token_ms = std::accumulate(itl_ms.begin(), itl_ms.end(), record.ttft_ms());
  EXPECT_GE(last_token_ms, 90.0 - 1e-6);
  EXPECT_LE(last_token_ms, record.e2el_ms() + 1e-6);
}

TEST(RemoteLoad, SaysWhatItIsAskedToSay) {
  Bodies bodies;
  std::string target, key, extra;
  const ScriptedServer server([&](ServedRequest& request) {
    bodies.add(request.body);
    target = request.target;
    key = request.header("Authorization");
    extra = request.header("X-Extra");
    stream_completion(request, 1);
    return true;
  });
  RemoteOptions options = options_of(server);
  options.base_url += "/proxy/";
  options.api_key = "secret";
  options.headers = {"X-Extra=a=b"};
  options.body["temperature"] = 0.5;
  options.override_body = {{"max_tokens", 99}, {"guided", {{"a", 1}}}};
  std::vector<Conversation> workload = prompts(1, 3);
  workload[0].priority = -4;
  RemoteLoad(options).run(workload, 0);
  EXPECT_EQ(target, "/proxy/v1/completions");
  EXPECT_EQ(key, "Bearer secret");
  EXPECT_EQ(extra, "a=b");
  EXPECT_EQ(bodies.all().at(0),
            Json::parse(R"({"model": "m", "prompt": "hello", "max_tokens": 99, "stream": true,
      "stream_options": {"include_usage": true}, "priority": -4, "temperature": 0.5, "guided": {"a": 1}})"));
}

TEST(RemoteLoad, AsksForTheModelsName) {
  const ScriptedServer server([](ServedRequest& request) {
    EXPECT_EQ(request.target, "/v1/models");
    request.respond(200, R"({"object":"list","data":[{"id":"first"},{"id":"second"}]})");
    return true;
  });
  RemoteOptions options = options_of(server);
  options.model = "";
  EXPECT_EQ(RemoteLoad(options).model(), "first");
  const ScriptedServer other([](ServedRequest& request) {
    request.respond(401, R"({"error":{"message":"no key"}})");
    return true;
  });
  options.base_url = other.url();
  try {
    RemoteLoad(options).model();
    FAIL() << "no model was named";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("HTTP 401: no key"));
  }
}

TEST(RemoteLoad, ManyStreamsAtOnceOnAsManyConnections) {
  constexpr int kStreams = 100;
  std::atomic<int> num_begun = 0;
  std::atomic<bool> all_met = true;
  const ScriptedServer server([&](ServedRequest& request) {
    ++num_begun;
    if (!test::wait_until([&] { return num_begun == kStreams; })) all_met = false;
    stream_completion(request, 20);
    return true;
  });
  const LoadResult result = RemoteLoad(options_of(server)).run(prompts(kStreams), 0);
  ASSERT_EQ(result.records.size(), static_cast<size_t>(kStreams));
  for (const RequestRecord& record : result.records) {
    EXPECT_EQ(record.problem(), "");
    EXPECT_EQ(record.chunk_ns.size(), 20u);
  }
  EXPECT_EQ(server.num_connections(), kStreams);
  EXPECT_TRUE(all_met) << "each waits for all others";
}

TEST(RemoteLoad, ConcurrencyIsLimitedAndConnectionsAreKept) {
  std::atomic<int> active = 0;
  const ScriptedServer server([&](ServedRequest& request) {
    EXPECT_LE(++active, 3);
    stream_completion(request, 2, 1);
    --active;
    return true;
  });
  const LoadResult result = RemoteLoad(options_of(server)).run(prompts(30), 3);
  EXPECT_EQ(result.records.size(), 30u);
  for (const RequestRecord& record : result.records)
    EXPECT_EQ(record.problem(), "");
  EXPECT_EQ(server.num_connections(), 3);
}

TEST(RemoteLoad, NoRequestIsSentBeforeItsTime) {
  const ScriptedServer server([](ServedRequest& request) {
    stream_completion(request, 1);
    return true;
  });
  std::vector<Conversation> workload = prompts(4);
  for (size_t i = 0; i < workload.size(); ++i)
    workload[i].arrival_s = 0.05 * static_cast<double>(i);
  const int64_t begin_ns = now_ns();
  LoadResult result = RemoteLoad(options_of(server)).run(workload, 0);
  ASSERT_EQ(result.records.size(), 4u);
  std::ranges::sort(result.records, {}, &RequestRecord::start_ns);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_GE(result.records[i].start_ns - begin_ns, static_cast<int64_t>(i) * 50'000'000) << i;
}

TEST(RemoteLoad, TheClosingOfAKeptConnectionCostsNoRequest) {
  const ScriptedServer server([](ServedRequest& request) {
    stream_completion(request, 2);
    return false;  // closed, though nothing in the response announced it
  });
  RemoteLoad load(options_of(server));
  for (int i = 0; i < 20; ++i) {
    const LoadResult result = load.run(prompts(1), 0);
    EXPECT_EQ(result.records.at(0).problem(), "") << i;
  }
  EXPECT_EQ(server.num_connections(), 20);
}

TEST(RemoteLoad, OddButValidHttpIsRead) {
  // A chunk cut within an event, chunk extensions, a body that ends with the connection, and a small body of
  // known length.
  const std::string events = test::text_event("a") + test::usage_event(1, 1) + "data: [DONE]\r\n\r\n";
  const RequestRecord chunked = run_one([&](ServedRequest& request) {
    request.begin_stream();
    for (size_t at = 0; at < events.size(); at += 3) {
      const std::string piece = events.substr(at, 3);
      request.write(fmt::format("{:x};x=y\r\n{}\r\n", piece.size(), piece));
    }
    request.write("0\r\nTrailer: x\r\n\r\n");
    return true;
  });
  EXPECT_EQ(chunked.problem(), "");
  EXPECT_EQ(chunked.text, "a");
  const RequestRecord to_close = run_one([&](ServedRequest& request) {
    request.write("HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + events);
    return false;
  });
  EXPECT_EQ(to_close.problem(), "");
  EXPECT_EQ(to_close.text, "a");
  const RequestRecord sized = run_one([&](ServedRequest& request) {
    request.respond(200, events);
    return true;
  });
  EXPECT_EQ(sized.problem(), "");
  EXPECT_EQ(sized.text, "a");
}

TEST(RemoteLoad, FailuresAreToldApart) {
  EXPECT_EQ(run_one([](ServedRequest& request) {
              request.respond(429, R"({"error":{"message":"slow down"}})");
              return true;
            }).problem(),
            "HTTP 429: slow down");
  EXPECT_EQ(run_one([](ServedRequest& request) {
              request.respond(500, "");
              return true;
            }).problem(),
            "HTTP 500");
  EXPECT_EQ(run_one([](ServedRequest& request) {
              request.begin_stream();
              request.write_chunk(test::text_event("a"));
              request.write_chunk("data: {\"error\":{\"message\":\"engine died\"}}\n\n");
              return false;
            }).problem(),
            "error in the stream: engine died");
  EXPECT_EQ(run_one([](ServedRequest& request) {
              request.begin_stream();
              request.write_chunk(test::text_event("a"));
              return false;
            }).problem(),
            "connection closed by the server");
  EXPECT_EQ(run_one([](ServedRequest&) { return false; }).problem(), "connection closed by the server");
  EXPECT_THAT(run_one([](ServedRequest& request) {
                request.write("SSH-2.0-server\r\n\r\n");
                return true;
              }).problem(),
              HasSubstr("no valid HTTP"));
}

TEST(RemoteLoad, NobodyListening) {
  const test::BoundPort port;
  RemoteOptions options;
  options.base_url = fmt::format("http://127.0.0.1:{}", port.number());
  options.model = "m";
  const LoadResult result = RemoteLoad(options).run(prompts(3), 0);
  ASSERT_EQ(result.records.size(), 3u);
  for (const RequestRecord& record : result.records)
    EXPECT_EQ(record.problem(), "connection refused");
  EXPECT_THROW(RemoteLoad(options).wait_until_ready(prompts(1), 0.1), Error);
  options.base_url = "http://no-such-host.invalid";
  EXPECT_THROW(RemoteLoad(options).wait_until_ready(prompts(1), 0.1), Error);
}

TEST(RemoteLoad, ARequestThatTakesTooLongFailsAndOthersGoOn) {
  std::atomic<int> num_requests = 0;
  const ScriptedServer server([&](ServedRequest& request) {
    if (num_requests++ == 0) {
      request.begin_stream();
      request.wait_until_closed();
      return false;
    }
    stream_completion(request, 2);
    return true;
  });
  RemoteOptions options = options_of(server);
  options.request_timeout_s = 2.0;  // for the other requests too, on a slow machine
  const LoadResult result = RemoteLoad(options).run(prompts(5), 1);
  ASSERT_EQ(result.records.size(), 5u);
  EXPECT_EQ(result.records[0].problem(), "timed out");
  for (size_t i = 1; i < 5; ++i)
    EXPECT_EQ(result.records[i].problem(), "");
}

TEST(RemoteLoad, WaitsUntilTheServerIsReady) {
  std::atomic<int> num_requests = 0;
  const ScriptedServer server([&](ServedRequest& request) {
    if (num_requests++ == 0) {
      request.respond(503, "");
    } else {
      stream_completion(request, 1);
    }
    return true;
  });
  RemoteLoad(options_of(server)).wait_until_ready(prompts(1), 30.0);
  EXPECT_EQ(num_requests, 2);
}

Conversation conversation(const std::vector<BenchPrompt>& turns) {
  Conversation result;
  for (const BenchPrompt& prompt : turns)
    result.turns.push_back({prompt, 2});
  return result;
}

TEST(RemoteLoad, ChatsSendTheirWholeHistory) {
  Bodies bodies;
  const ScriptedServer server([&](ServedRequest& request) {
    bodies.add(request.body);
    request.begin_stream();
    request.write_chunk("data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n");
    request.write_chunk("data: {\"choices\":[{\"delta\":{\"content\":\"an\"}}]}\n\n");
    request.write_chunk("data: {\"choices\":[{\"delta\":{\"content\":\"swer\"}}]}\n\n");
    request.end_stream();
    return true;
  });
  RemoteOptions options = options_of(server);
  options.endpoint = "/v1/chat/completions";
  options.keep_text = false;
  const LoadResult result =
      RemoteLoad(options).run({conversation({{{}, "one"}, {{}, "two"}, {{}, "three"}})}, 0);
  ASSERT_EQ(result.records.size(), 3u);
  EXPECT_EQ(result.records[0].chunk_ns.size(), 2u) << "the role is no output";
  EXPECT_EQ(result.records[0].text, "") << "kept for the history alone";
  ASSERT_EQ(bodies.all().size(), 3u);
  EXPECT_EQ(bodies.all()[2]["messages"], Json::parse(R"([{"role": "user", "content": "one"},
      {"role": "assistant", "content": "answer"}, {"role": "user", "content": "two"},
      {"role": "assistant", "content": "answer"}, {"role": "user", "content": "three"}])"));
  EXPECT_EQ(bodies.all()[0]["max_completion_tokens"], 2);
}

TEST(RemoteLoad, CompletionsSendTheirWholeHistoryAsTokensOrText) {
  Bodies bodies;
  const ScriptedServer server([&](ServedRequest& request) {
    bodies.add(request.body);
    stream_completion(request, 2);
    return true;
  });
  const std::unique_ptr<Tokenizer> tokenizer = make_byte_tokenizer(300);
  RemoteOptions options = options_of(server);
  options.tokenizer = tokenizer.get();
  RemoteLoad(options).run({conversation({{{7, 8}, ""}, {{9}, ""}})}, 0);
  std::vector<TokenId> expected = {7, 8};
  for (TokenId token : tokenizer->encode(" t0 t1", {.add_special = false}))
    expected.push_back(token);
  expected.push_back(9);
  EXPECT_EQ(bodies.all().at(1)["prompt"], expected);
  options.tokenizer = nullptr;
  RemoteLoad(options).run({conversation({{{}, "a"}, {{}, "b"}})}, 0);
  EXPECT_EQ(bodies.all().at(3)["prompt"], "a t0 t1\nb");
}

TEST(RemoteLoad, AConversationEndsWithTheTurnThatFails) {
  std::atomic<int> num_requests = 0;
  const auto records = run(
      [&](ServedRequest& request) {
        if (++num_requests == 2) {
          request.respond(500, "");
        } else {
          stream_completion(request, 1);
        }
        return true;
      },
      {conversation({{{}, "a"}, {{}, "b"}, {{}, "c"}})});
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[1].problem(), "HTTP 500");
}

TEST(RemoteLoad, TokensCannotGoToAChat) {
  const ScriptedServer server([](ServedRequest&) { return true; });
  RemoteOptions options = options_of(server);
  options.endpoint = "/v1/chat/completions";
  EXPECT_THROW(RemoteLoad(options).run({conversation({{{1, 2}, ""}})}, 0), Error);
}

TEST(RemoteLoad, HeadersThatWouldBeSeveralAreRefused) {
  RemoteOptions options;
  options.base_url = "http://127.0.0.1";
  for (const char* header : {"=x", "a b=c", "a=b\r\nc: d", "a:=b"}) {
    options.headers = {header};
    EXPECT_THROW(RemoteLoad{options}, Error) << header;
  }
}

}  // namespace
}  // namespace minfer
