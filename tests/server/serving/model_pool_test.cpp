// A server with several models: each request goes to its own, which is loaded when it is asked for and unloaded when another needs room.
#include <future>
#include <set>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/support/server/client_swarm.h"
#include "tests/support/server/pool_server.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;
using test::body_for;
using test::PoolModel;
using test::PoolServer;
using test::StepGate;
using test::text_of;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Holds a load until the test lets it go on.
class LoadGate {
 public:
  /// For PoolModel::before_load; `notices`: a load that is given up ends.
  std::function<void(const LoadProgress&)> hook(bool notices = true) {
    return [this, notices](const LoadProgress& progress) {
      ++num_arrived_;
      const bool has_opened = test::wait_until([&] {
        if (notices) progress(0, 1);
        return open_.load();
      });
      if (!has_opened) throw Error("the gate stayed shut");
    };
  }
  void open() { open_ = true; }
  [[nodiscard]] bool wait_for_arrival() const {
    return test::wait_until([&] { return num_arrived_ > 0; });
  }

 private:
  std::atomic<bool> open_{false};
  std::atomic<int> num_arrived_{0};
};

/// The answer of a model of that seed alone.
std::string alone(uint64_t seed, const std::vector<TokenId>& prompt, int32_t max_tokens) {
  test::EngineCounts counts;
  const auto engine = test::make_pool_engine({.name = "alone", .seed = seed}, counts);
  return test::text_alone(*engine, prompt, max_tokens);
}

ModelSet at_most(size_t max_loaded) {
  return {.max_loaded = max_loaded, .max_waiting = 100};
}

std::string post_text(const std::string& body) {
  return RawClient::request_text("POST", "/v1/completions", body);
}

const std::vector<TokenId> kPrompt{5, 6, 7};

TEST(ModelPoolTest, EachRequestGoesToItsModel) {
  const std::string of_a = alone(1, kPrompt, 20), of_b = alone(2, kPrompt, 20);
  ASSERT_NE(of_a, of_b);
  PoolServer server({{.name = "a", .seed = 1}, {.name = "b", .seed = 2}}, at_most(2));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(text_of(server.complete(body_for("a", kPrompt, 20))), of_a);
    const auto response = server.complete(body_for("b", kPrompt, 20));
    EXPECT_EQ(text_of(response), of_b);
    EXPECT_EQ(Json::parse(response.body)["model"], "b");
  }
  EXPECT_EQ(server.num_loads(1), 1);
  const std::string rest = R"("prompt":[5,6,7],"max_tokens":20,"ignore_eos":true})";
  EXPECT_EQ(text_of(server.complete("{" + rest)), of_a) << "without a model: the first";
  EXPECT_EQ(text_of(server.complete(R"({"model":null,)" + rest)), of_a);
  EXPECT_EQ(parse_events(server.complete(body_for("b", kPrompt, 20, true)).body).text, of_b);
  EXPECT_TRUE(server.stop());
}

TEST(ModelPoolTest, AnUnknownModelIsA404ThatNamesThoseThatExist) {
  PoolServer server({{.name = "a"}, {.name = "b"}}, at_most(2));
  for (const char* path :
       {"/v1/completions", "/v1/chat/completions", "/tokenize", "/api/chat", "/v1/messages"}) {
    const auto response =
        server.connect().request("POST", path, R"({"model":"c","prompt":"x","max_tokens":1})");
    EXPECT_EQ(response.status, 404) << path;
    EXPECT_THAT(response.body, AllOf(HasSubstr("`c`"), HasSubstr("`a`, `b`"))) << path;
  }
  EXPECT_EQ(server.connect().request("GET", "/v1/models/c").status, 404);
  EXPECT_EQ(server.connect().request("GET", "/profile/summary?model=c").status, 404);
  EXPECT_EQ(server.complete("no JSON").status, 400);
  EXPECT_EQ(server.complete(R"({"model":7,"prompt":"x"})").status, 400);
  EXPECT_EQ(server.num_loads(1), 0);
}

TEST(ModelPoolTest, ListsSayWhichModelsAreLoaded) {
  LoadGate gate;
  PoolServer server({{.name = "a"}, {.name = "b", .before_load = gate.hook()}}, at_most(2));
  const auto names_at = [&](const char* path) {
    std::set<std::string> names;
    const Json answer = Json::parse(server.connect().request("GET", path).body);
    for (const Json& model : answer["models"])
      names.insert(model["name"]);
    return names;
  };
  EXPECT_EQ(server.status("a"), "loaded");
  EXPECT_EQ(server.status("b"), "unloaded");
  EXPECT_THAT(names_at("/api/tags"), testing::ElementsAre("a:latest", "b:latest"));
  EXPECT_THAT(names_at("/api/ps"), testing::ElementsAre("a:latest"));
  RawClient client = server.connect();
  client.send(post_text(body_for("b", kPrompt, 3)));
  ASSERT_TRUE(gate.wait_for_arrival());
  EXPECT_EQ(server.status("b"), "loading");
  EXPECT_THAT(names_at("/api/ps"), testing::ElementsAre("a:latest"));
  gate.open();
  EXPECT_EQ(client.response().status, 200);
  EXPECT_EQ(server.status("b"), "loaded");
  EXPECT_THAT(names_at("/api/ps"), testing::ElementsAre("a:latest", "b:latest"));
  EXPECT_EQ(Json::parse(server.connect().request("GET", "/v1/models/b").body)["status"]["value"], "loaded");
}

TEST(ModelPoolTest, ATaggedNameOfOllamaFindsItsModel) {
  PoolServer server({{.name = "a", .seed = 1}, {.name = "b", .seed = 2}}, at_most(2));
  const auto response = server.connect().request(
      "POST", "/api/generate",
      R"({"model":"b:latest","prompt":"x","stream":false,"options":{"temperature":0,"num_predict":5}})");
  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(server.num_loads(1), 1);
  EXPECT_EQ(server.connect().request("POST", "/api/show", R"({"name":"b:latest"})").status, 200);
  EXPECT_EQ(server.connect().request("POST", "/api/show", R"({"model":"c:latest"})").status, 404);
}

TEST(ModelPoolTest, TokensNeedNoLoadedModel) {
  PoolServer server({{.name = "a"}, {.name = "b"}}, at_most(2));
  const auto response = server.connect().request("POST", "/tokenize", R"({"model":"b","prompt":"abc"})");
  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_GT(Json::parse(response.body)["count"], 0);
  EXPECT_EQ(server.connect().request("GET", "/tokenizer_info?model=b").status, 200);
  EXPECT_EQ(server.num_loads(1), 0);
}

TEST(ModelPoolTest, WithOneLoadedAtATimeAllRequestsAreAnsweredRight) {
  constexpr int kThreads = 4, kRequests = 8;
  PoolServer server({{.name = "a", .seed = 1}, {.name = "b", .seed = 2}, {.name = "c", .seed = 3}},
                    at_most(1));
  const std::vector<std::string> names{"a", "b", "c"};
  std::vector<std::string> expected;
  for (uint64_t seed = 1; seed <= 3; ++seed)
    expected.push_back(alone(seed, kPrompt, 10));
  std::vector<std::thread> threads;
  std::atomic<int> num_right{0};
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kRequests; ++i) {
        const auto model = static_cast<size_t>(thread + i) % names.size();
        const auto response = server.complete(body_for(names[model], kPrompt, 10));
        EXPECT_EQ(response.status, 200) << response.body;
        if (response.status == 200 && text_of(response) == expected[model]) ++num_right;
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(num_right, kThreads * kRequests);
  EXPECT_EQ(server.engines().most_alive, 1);
  EXPECT_GE(server.num_loads(1) + server.num_loads(2), 2);
  EXPECT_TRUE(server.stop());
}

TEST(ModelPoolTest, ALoadDelaysNoOtherModelsStreamAndNoHealthCheck) {
  StepGate steps;
  LoadGate load;
  PoolServer server({{.name = "a", .gate = &steps}, {.name = "b", .before_load = load.hook()}}, at_most(2));
  RawClient stream = server.connect(), waiting = server.connect();
  stream.send(post_text(body_for("a", kPrompt, 50, true)));
  ASSERT_TRUE(steps.run_steps(3));
  stream.receive_until("data: ");
  waiting.send(post_text(body_for("b", kPrompt, 5)));
  ASSERT_TRUE(load.wait_for_arrival());
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(steps.run_steps(3));
    stream.receive_until("data: ");
    EXPECT_EQ(server.connect().request("GET", "/health").status, 200);
  }
  steps.open();
  EXPECT_EQ(server.complete(body_for("a", kPrompt, 5)).status, 200);
  EXPECT_FALSE(waiting.is_readable());
  load.open();
  EXPECT_EQ(waiting.response().status, 200);
}

TEST(ModelPoolTest, AModelWithRequestsStaysAndThoseThatComeBehindAnotherModelsWait) {
  StepGate steps;
  PoolServer server({{.name = "a", .seed = 1, .gate = &steps}, {.name = "b", .seed = 2}}, at_most(1));
  RawClient first = server.connect(), other = server.connect(), second = server.connect();
  first.send(post_text(body_for("a", kPrompt, 20)));
  ASSERT_TRUE(steps.run_steps(3));
  other.send(post_text(body_for("b", kPrompt, 20)));
  ASSERT_TRUE(server.wait_for_waiting("b", 1));
  second.send(post_text(body_for("a", {8, 9}, 20)));
  ASSERT_TRUE(server.wait_for_waiting("a", 1)) << "else requests to a could keep b waiting for ever";
  EXPECT_EQ(server.status("a"), "loaded");
  EXPECT_EQ(server.num_loads(1), 0);
  steps.open();
  EXPECT_EQ(text_of(first.response()), alone(1, kPrompt, 20));
  EXPECT_EQ(text_of(other.response()), alone(2, kPrompt, 20));
  EXPECT_EQ(text_of(second.response()), alone(1, {8, 9}, 20));
  EXPECT_EQ(server.num_loads(0), 1);
  EXPECT_EQ(server.num_loads(1), 1);
  EXPECT_EQ(server.engines().most_alive, 1);
}

TEST(ModelPoolTest, TheModelWhoseLastRequestEndedFirstMakesRoom) {
  PoolServer server({{.name = "a"}, {.name = "b"}, {.name = "c"}}, at_most(2));
  for (const char* model : {"a", "b", "a", "c"})
    EXPECT_EQ(server.complete(body_for(model, kPrompt, 3)).status, 200);
  EXPECT_EQ(server.status("a"), "loaded");
  EXPECT_EQ(server.status("b"), "unloaded");
  EXPECT_EQ(server.status("c"), "loaded");
}

TEST(ModelPoolTest, MemoryBoundsWhatIsLoadedTogether) {
  ModelSet set = at_most(4);
  set.memory_bytes = 100;
  PoolServer server({{.name = "a", .bytes = 50},
                     {.name = "b", .bytes = 40},
                     {.name = "c", .bytes = 60},
                     {.name = "d", .bytes = 101}},
                    std::move(set));
  EXPECT_EQ(server.complete(body_for("b", kPrompt, 3)).status, 200);
  EXPECT_EQ(server.status("a"), "loaded") << "90 of 100 bytes";
  EXPECT_EQ(server.complete(body_for("c", kPrompt, 3)).status, 200);
  EXPECT_EQ(server.status("a"), "unloaded");
  EXPECT_EQ(server.status("b"), "loaded");
  const auto refused = server.complete(body_for("d", kPrompt, 3));
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.body, AllOf(HasSubstr("`d`"), HasSubstr("101 bytes"), HasSubstr("100")));
  EXPECT_EQ(server.num_loads(3), 0);
  EXPECT_EQ(server.status("c"), "loaded") << "nothing makes room for a model that can never have it";
}

TEST(ModelPoolTest, AModelWithoutRequestsForLongEnoughIsUnloaded) {
  StepGate steps;
  ModelSet set = at_most(2);
  set.unload_after = 20ms;
  PoolServer server({{.name = "a", .gate = &steps}, {.name = "b"}}, std::move(set));
  RawClient client = server.connect();
  client.send(post_text(body_for("a", kPrompt, 5)));
  ASSERT_TRUE(steps.wait_for_arrival());
  EXPECT_EQ(server.complete(body_for("b", kPrompt, 5)).status, 200);
  EXPECT_TRUE(server.wait_for_status("b", "unloaded"));
  EXPECT_EQ(server.status("a"), "loaded") << "it has a request";
  steps.open();
  EXPECT_EQ(client.response().status, 200);
  EXPECT_TRUE(server.wait_for_status("a", "unloaded"));
  EXPECT_TRUE(test::wait_until([&] { return server.engines().alive == 0; }));
  EXPECT_EQ(server.connect().request("GET", "/health").status, 200);
  EXPECT_EQ(server.connect().request("GET", "/profile/summary").status, 409);
  EXPECT_EQ(server.complete(body_for("a", kPrompt, 5)).status, 200);
}

TEST(ModelPoolTest, ALoadThatFailsIsToldAndTriedAgain) {
  std::atomic<bool> fails{true};
  LoadGate gate;
  const auto hook = [&, wait = gate.hook()](const LoadProgress& progress) {
    wait(progress);
    if (fails) throw FileError("b.gguf: the file has shrunk");
  };
  PoolServer server({{.name = "a"}, {.name = "b", .before_load = hook}}, at_most(1));
  std::vector<RawClient> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(server.connect());
    clients.back().send(post_text(body_for("b", kPrompt, 5, i == 1)));
  }
  ASSERT_TRUE(server.wait_for_waiting("b", 3));
  gate.open();
  for (RawClient& client : clients) {
    const auto response = client.response();
    EXPECT_EQ(response.status, 503);
    EXPECT_THAT(response.body, AllOf(HasSubstr("`b`"), HasSubstr("the file has shrunk")));
    EXPECT_NE(response.header("retry-after"), "");
  }
  const Json listed = Json::parse(server.connect().request("GET", "/v1/models/b").body);
  EXPECT_EQ(listed["status"], (Json{{"value", "unloaded"}, {"failed", true}}));
  EXPECT_EQ(server.connect().request("GET", "/health").status, 200);
  EXPECT_EQ(server.complete(body_for("a", kPrompt, 5)).status, 200);
  fails = false;
  EXPECT_EQ(server.complete(body_for("b", kPrompt, 5)).status, 200);
  EXPECT_EQ(server.num_loads(1), 2);
  EXPECT_TRUE(server.stop());
}

TEST(ModelPoolTest, AClientThatGoesWhileItsModelLoadsIsForgotten) {
  LoadGate gate;
  PoolServer server({{.name = "a"}, {.name = "b", .seed = 2, .before_load = gate.hook()}}, at_most(2));
  RawClient gone = server.connect(), stays = server.connect();
  gone.send(post_text(body_for("b", kPrompt, 5)));
  stays.send(post_text(body_for("b", {8}, 5)));
  ASSERT_TRUE(server.wait_for_waiting("b", 2));
  gone.close();
  ASSERT_TRUE(server.wait_for_waiting("b", 1));
  gate.open();
  EXPECT_EQ(text_of(stays.response()), alone(2, {8}, 5));
  EXPECT_EQ(server.metric("vllm:request_params_n_count", "b"), 1.0)
      << "the engine got no request of the other";
}

TEST(ModelPoolTest, ALoadThatNobodyWaitsForMakesWayForAnother) {
  LoadGate never;
  PoolServer server({{.name = "a"}, {.name = "b", .before_load = never.hook()}, {.name = "c"}}, at_most(3));
  RawClient gone = server.connect(), other = server.connect();
  gone.send(post_text(body_for("b", kPrompt, 5)));
  ASSERT_TRUE(never.wait_for_arrival());
  other.send(post_text(body_for("c", kPrompt, 5)));
  ASSERT_TRUE(server.wait_for_waiting("c", 1));
  gone.close();
  EXPECT_EQ(other.response().status, 200);
  EXPECT_EQ(server.status("b"), "unloaded");
  never.open();
  EXPECT_EQ(server.complete(body_for("b", kPrompt, 5)).status, 200);
}

TEST(ModelPoolTest, AModelThatNobodyWaitsForAnyMoreIsNotLoaded) {
  StepGate steps;
  PoolServer server({{.name = "a", .gate = &steps}, {.name = "b"}}, at_most(1));
  RawClient first = server.connect(), second = server.connect();
  first.send(post_text(body_for("a", kPrompt, 5)));
  ASSERT_TRUE(steps.wait_for_arrival());
  {
    RawClient gone = server.connect();
    gone.send(post_text(body_for("b", kPrompt, 5)));
    ASSERT_TRUE(server.wait_for_waiting("b", 1));
    second.send(post_text(body_for("a", kPrompt, 5)));
    ASSERT_TRUE(server.wait_for_waiting("a", 1));
  }
  ASSERT_TRUE(server.wait_for_waiting("a", 0)) << "a need not make room any more";
  steps.open();
  EXPECT_EQ(first.response().status, 200);
  EXPECT_EQ(second.response().status, 200);
  EXPECT_EQ(server.num_loads(0), 0);
  EXPECT_EQ(server.num_loads(1), 0);
}

TEST(ModelPoolTest, RequestsThatWaitAreBounded) {
  LoadGate gate;
  ModelSet set = at_most(2);
  set.max_waiting = 2;
  PoolServer server({{.name = "a"}, {.name = "b", .before_load = gate.hook()}}, std::move(set));
  std::vector<RawClient> clients;
  for (int i = 0; i < 2; ++i) {
    clients.push_back(server.connect());
    clients.back().send(post_text(body_for("b", kPrompt, 5)));
  }
  ASSERT_TRUE(server.wait_for_waiting("b", 2));
  const auto refused = server.complete(body_for("b", kPrompt, 5));
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.body, HasSubstr("`b`"));
  gate.open();
  for (RawClient& client : clients)
    EXPECT_EQ(client.response().status, 200);
}

TEST(ModelPoolTest, AShutdownEndsALoadAndTellsThoseWhoWait) {
  LoadGate never;
  ServerOptions options;
  options.shutdown_timeout = test::kPatience;
  PoolServer server({{.name = "a"}, {.name = "b", .before_load = never.hook()}}, at_most(2), options);
  RawClient client = server.connect();
  client.send(post_text(body_for("b", kPrompt, 5)));
  ASSERT_TRUE(never.wait_for_arrival());
  server.server().shut_down();
  const auto response = client.response();
  EXPECT_EQ(response.status, 503);
  EXPECT_THAT(response.body, HasSubstr("shutting down"));
  client.close();
  EXPECT_TRUE(server.wait());
  EXPECT_FALSE(server.server().engine_hangs());
}

TEST(ModelPoolTest, ALoadThatHangsDoesNotKeepTheServer) {
  LoadGate stuck;
  ServerOptions options;
  options.last_step_timeout = 50ms;
  PoolServer server({{.name = "a"}, {.name = "b", .before_load = stuck.hook(false)}}, at_most(2), options);
  RawClient client = server.connect();
  client.send(post_text(body_for("b", kPrompt, 5)));
  ASSERT_TRUE(stuck.wait_for_arrival());
  server.server().shut_down();
  EXPECT_EQ(client.response().status, 503);
  client.close();
  EXPECT_FALSE(server.wait());
  EXPECT_TRUE(server.server().engine_hangs());
  stuck.open();
}

TEST(ModelPoolTest, EachModelHasItsProfileAndMetrics) {
  test::TemporaryDirectory folder;
  ServerOptions options;
  options.profile_dir = folder.path().string();
  PoolServer server({{.name = "a"}, {.name = "b"}, {.name = "c"}}, at_most(2), options);
  const auto summary = [&](const std::string& query) {
    return server.connect().request("GET", "/profile/summary" + query);
  };
  EXPECT_EQ(summary("?model=b").status, 409) << "asking for its profile loads no model";
  EXPECT_EQ(server.num_loads(1), 0);
  EXPECT_EQ(server.complete(body_for("b", kPrompt, 5)).status, 200);
  EXPECT_THAT(summary("").body, HasSubstr(R"("served_model_name":"a")"));
  EXPECT_THAT(summary("?model=b").body, HasSubstr(R"("served_model_name":"b")"));
  EXPECT_EQ(server.metric("minfer:model_loaded", "b"), 1.0);
  EXPECT_EQ(server.metric("vllm:generation_tokens_total", "a"), 0.0);
  EXPECT_EQ(server.metric("vllm:generation_tokens_total", "b"), 5.0);

  // A profile that is being taken, and a page that watches, do not keep a model.
  const auto started = server.connect().request("POST", "/start_profile?model=b");
  ASSERT_EQ(started.status, 200) << started.body;
  RawClient page = server.connect();
  page.send(RawClient::request_text("GET", "/profile/events?model=b"));
  page.receive_until("data: ");
  for (const char* model : {"a", "c"})
    EXPECT_EQ(server.complete(body_for(model, kPrompt, 5)).status, 200);
  ASSERT_EQ(server.status("b"), "unloaded");
  page.receive_until("\r\n0\r\n\r\n");
  EXPECT_EQ(server.connect().request("POST", "/stop_profile?model=b").status, 409);
  EXPECT_EQ(server.metric("minfer:model_loaded", "b"), 0.0);
  EXPECT_EQ(server.metric("vllm:generation_tokens_total", "b"), 5.0) << "counters outlast their model";
  EXPECT_EQ(server.complete(body_for("b", kPrompt, 5)).status, 200);
  EXPECT_EQ(server.metric("vllm:generation_tokens_total", "b"), 10.0);
  EXPECT_EQ(server.connect().request("POST", "/start_profile?model=b").status, 200);
}

}  // namespace
}  // namespace minfer
