// `minfer bench`'s load tests by their options: against the engine in the process, and against a server.
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "kernels/base/error.h"
#include "profiling/json/json_reader.h"
#include "server/commands/commands.h"
#include "tests/support/server/scripted_server.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

using Json = nlohmann::json;
using test::ScriptedServer;
using test::ServedRequest;
using testing::HasSubstr;

constexpr const char* kTiny = "--model synthetic:tiny:q8_0 --max-model-len 256 --threads 1 ";

void bench(const std::string& options) {
  CLI::App app;
  add_bench_command(app);
  app.parse("bench " + options);
}

/// The result that the load test prints.
Json result_of(const std::string& options) {
  testing::internal::CaptureStdout();
  try {
    bench("-o jsonl " + options);
  } catch (const std::exception& error) {
    ADD_FAILURE() << options << ": " << error.what();
  }
  return Json::parse(testing::internal::GetCapturedStdout());
}

std::string refusal_of(const std::string& options) {
  testing::internal::CaptureStdout();
  std::string message;
  try {
    bench(options);
  } catch (const std::exception& error) {
    message = error.what();
  }
  testing::internal::GetCapturedStdout();
  return message;
}

test::Script completions(int num_tokens) {
  return [num_tokens](ServedRequest& request) {
    stream_completion(request, num_tokens);
    return true;
  };
}

TEST(LoadCommand, AServersResultHasVllmsNames) {
  const ScriptedServer server(completions(5));
  const Json result = result_of(fmt::format(
      "--base-url {} --model m --num-prompts 6 --max-concurrency 2 --request-rate 1000 --burstiness 2 "
      "--goodput ttft:60000 e2el:60000 --metric-percentiles 50,99.9 --percentile-metrics ttft,e2el",
      server.url()));
  EXPECT_EQ(result["backend"], "openai");
  EXPECT_EQ(result["model_id"], "m");
  EXPECT_EQ(result["completed"], 6);
  EXPECT_EQ(result["failed"], 0);
  EXPECT_EQ(result["total_input_tokens"], 66);
  EXPECT_EQ(result["total_output_tokens"], 30);
  EXPECT_EQ(result["request_rate"], 1000.0);
  EXPECT_EQ(result["burstiness"], 2.0);
  EXPECT_EQ(result["max_concurrency"], 2);
  EXPECT_EQ(result["request_goodput"], result["request_throughput"]);
  EXPECT_EQ(result["max_output_tokens_per_s"], 30.0);
  for (const char* field : {"mean_ttft_ms", "median_ttft_ms", "std_ttft_ms", "p50_ttft_ms", "p99.9_e2el_ms"})
    EXPECT_TRUE(result[field].is_number()) << field;
  EXPECT_FALSE(result.contains("mean_itl_ms"));
}

TEST(LoadCommand, ErrorsAreCountedByKindAndShown) {
  std::atomic<int> num_requests = 0;
  const ScriptedServer server([&](ServedRequest& request) {
    if (num_requests++ % 2 == 0) {
      request.respond(429, R"({"error":{"message":"slow\u001b[2Jdown"}})");
    } else {
      stream_completion(request, 1);
    }
    return true;
  });
  testing::internal::CaptureStderr();
  const Json result = result_of(fmt::format("--base-url {} --model m --num-prompts 4", server.url()));
  EXPECT_EQ(result["completed"], 2);
  EXPECT_EQ(result["failed"], 2);
  EXPECT_EQ(result["error_counts"], (Json{{"HTTP 429", 2}}));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("HTTP 429, e.g.: slow [2Jdown"));
  const ScriptedServer broken([](ServedRequest& request) {
    request.respond(500, "");
    return true;
  });
  EXPECT_THAT(refusal_of(fmt::format("--base-url {} --model m --num-prompts 4", broken.url())),
              HasSubstr("no request was completed"));
}

TEST(LoadCommand, WarmUpsAreSentAndNotCounted) {
  std::atomic<int> num_requests = 0;
  const ScriptedServer server([&](ServedRequest& request) {
    ++num_requests;
    stream_completion(request, 1);
    return true;
  });
  const Json result =
      result_of(fmt::format("--base-url {} --model m --num-prompts 4 --num-warmups 3", server.url()));
  EXPECT_EQ(result["completed"], 4);
  EXPECT_EQ(num_requests, 7);
}

/// The body of the one request that these options produce.
Json body_of(const std::string& options) {
  std::string body;
  const ScriptedServer server([&](ServedRequest& request) {
    body = request.body;
    stream_completion(request, 1);
    return true;
  });
  result_of(fmt::format("--base-url {} --model m --num-prompts 1 {}", server.url(), options));
  return Json::parse(body);
}

TEST(LoadCommand, OptionsReachTheServer) {
  const Json random =
      body_of("--tokenizer demo --input-len 7 --output-len 5 --stream-interval 4 --top-p 0.5 --top-k 3");
  EXPECT_EQ(random["prompt"].size(), 7u);
  EXPECT_EQ(random["max_tokens"], 5);
  EXPECT_EQ(random["stream_interval"], 4);
  EXPECT_EQ(random["temperature"], 0.0);
  EXPECT_EQ(random["top_p"], 0.5);
  EXPECT_EQ(random["top_k"], 3);
  EXPECT_EQ(random["ignore_eos"], true);
  const test::TemporaryDirectory directory;
  const std::string dataset = directory.path() / "prompts.jsonl";
  std::ofstream(dataset) << "{\"prompt\": \"a b\"}\n";
  const Json asked =
      body_of("--dataset " + dataset + " --temperature 0.7 --extra-body '{\"seed\":1,\"stop\":[\"x\"]}'");
  EXPECT_EQ(asked["prompt"], "a b");
  EXPECT_EQ(asked["temperature"], 0.7);
  EXPECT_EQ(asked["stop"], Json{"x"});
  EXPECT_FALSE(asked.contains("ignore_eos"));
  EXPECT_FALSE(asked.contains("stream_interval"));
  EXPECT_EQ(body_of("--dataset " + dataset + " --ignore-eos")["ignore_eos"], true);
}

TEST(LoadCommand, DetailsAreSaved) {
  const ScriptedServer server(completions(3));
  const test::TemporaryDirectory directory;
  const std::string path = directory.path() / "result.json";
  const Json printed = result_of(fmt::format(
      "--base-url {} --model m --num-prompts 2 --save-detailed --result-filename {}", server.url(), path));
  std::ifstream file(path);
  const Json saved = Json::parse(file);
  EXPECT_EQ(saved["generated_texts"], (Json{" t0 t1 t2", " t0 t1 t2"}));
  EXPECT_EQ(saved["output_lens"], (Json{3, 3}));
  EXPECT_EQ(saved["itls"][0].size(), 2u);
  EXPECT_EQ(saved["errors"], (Json{"", ""}));
  EXPECT_EQ(saved["ttfts"].size(), 2u);
  EXPECT_EQ(saved["duration"], printed["duration"]);
  EXPECT_FALSE(printed.contains("itls"));
}

TEST(LoadCommand, TheEngineIsTestedByTheSameOptions) {
  const std::string load =
      "--num-prompts 3 --num-turns 2 --input-len 20 --random-prefix-len 10 --output-len 4 ";
  const Json result =
      result_of(kTiny + load + "--num-warmups 2 --goodput e2el:100000 --request-rate 1000 --burstiness 3");
  EXPECT_EQ(result["backend"], "minfer");
  EXPECT_EQ(result["completed"], 6);
  EXPECT_EQ(result["total_input_tokens"], 3 * (30 + 54))
      << "the second turn has the first and its answer before it";
  EXPECT_EQ(result["total_output_tokens"], 24);
  EXPECT_EQ(result["request_goodput"], result["request_throughput"]);
  const Json refused = result_of(std::string(kTiny) +
                                 "--num-prompts 2 --input-len 20 --random-range-ratio 0.5 --output-len 2");
  EXPECT_EQ(refused["completed"], 2);
}

TEST(LoadCommand, ARecordedLoadIsReplayed) {
  const test::TemporaryDirectory directory;
  const std::string record = directory.path() / "record.jsonl", again = directory.path() / "again.jsonl";
  // One at a time, so that finding another prompt's blocks does not depend on the clock.
  const std::string options = std::string(kTiny) + "--block-size 16 --num-blocks 64 --max-concurrency 1 ";
  result_of(options +
            "--num-prompts 5 --input-len 30 --random-range-ratio 0.4 --random-prefix-len 50 --output-len 6 "
            "--profile-out " +
            record);
  const Json result = result_of(options + "--num-warmups 2 --replay " + record + " --profile-out " + again);
  EXPECT_EQ(result["completed"], 5);
  EXPECT_FALSE(result.contains("request_rate"));
  const Json& replay = result["replay"];
  EXPECT_EQ(replay["speed"], 1.0);
  EXPECT_EQ(replay["differences"], Json::array());
  EXPECT_EQ(replay["notes"], Json::array());
  for (const char* figure : {"requests", "cancelled", "prompt_tokens", "cached_tokens", "output_tokens"})
    EXPECT_EQ(replay["replayed"][figure], replay["recorded"][figure]) << figure;
  EXPECT_EQ(replay["recorded"]["cached_tokens"], 4 * 48);
  EXPECT_EQ(replay["recorded"]["output_tokens"], result["total_output_tokens"]);
  for (const char* figure : {"requests", "output_throughput", "median_ttft_ms", "p99_ttft_ms",
                             "median_itl_ms", "p99_itl_ms", "busy_s", "mean_e2e_ms"})
    EXPECT_GT(replay["ratio"][figure].get<double>(), 0.0) << figure;
  const ProfileFile first = read_profile(std::filesystem::path(record)),
                    second = read_profile(std::filesystem::path(again));
  ASSERT_EQ(second.requests.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(second.requests[i].prompt_tokens, first.requests[i].prompt_tokens);
    EXPECT_EQ(second.requests[i].output_tokens, first.requests[i].output_tokens);
    EXPECT_EQ(second.requests[i].cached_tokens, first.requests[i].cached_tokens);
  }

  const Json part = result_of(options + "--num-prompts 2 --replay " + record)["replay"];
  EXPECT_EQ(part["recorded"]["requests"], 2);
  EXPECT_EQ(part["replayed"]["requests"], 2);
  EXPECT_TRUE(part["ratio"]["busy_s"].is_null()) << "the record's steps are those of all requests";

  testing::internal::CaptureStdout();
  bench(options + "--replay-speed inf --max-num-seqs 3 --replay " + record);
  const std::string table = testing::internal::GetCapturedStdout();
  EXPECT_THAT(table, testing::ContainsRegex("requests +5 +5 +1.00"));
  EXPECT_THAT(table, testing::ContainsRegex("max_num_seqs +256 +3 +differs"));
  EXPECT_THAT(refusal_of(options + "--replay " + record + " --profile-out " + record),
              HasSubstr("is the profile that --replay reads"));
  EXPECT_THAT(refusal_of("--model synthetic:tiny:q8_0 --max-model-len 64 --threads 1 --replay " + record),
              HasSubstr("record.jsonl: request \"bench-"));
}

TEST(LoadCommand, DraftsOfAReplayAreRightAsOftenAsTheRecorded) {
  const test::TemporaryDirectory directory;
  const std::string record = directory.path() / "record.jsonl";
  const std::string drafts = std::string(kTiny) +
                             "--max-concurrency 1 --speculative ngram --no-adaptive-speculation "
                             "--num-speculative-tokens 4 ";
  result_of(drafts +
            "--num-prompts 6 --input-len 80 --output-len 120 --synthetic-acceptance-rate 0.8 --profile-out " +
            record);
  const Json replay = result_of(drafts + "--replay " + record)["replay"];
  const auto right = [&](const char* side) {
    EXPECT_GT(replay[side]["draft_tokens"], 100) << side;
    return replay[side]["accepted_tokens"].get<double>() / replay[side]["draft_tokens"].get<double>();
  };
  EXPECT_GT(right("recorded"), 0.3);
  EXPECT_NEAR(right("replayed"), right("recorded"), 0.15);
  EXPECT_EQ(replay["notes"], Json({"requests with draft tokens, replayed with the same mean share of right "
                                   "ones, not one by one: 6"}));
  const Json without = result_of(std::string(kTiny) + "--replay " + record)["replay"];
  EXPECT_EQ(without["replayed"]["draft_tokens"], 0);
}

TEST(LoadCommand, PrioritiesAreReplayed) {
  const test::TemporaryDirectory directory;
  const std::string prompts = directory.path() / "prompts.jsonl", record = directory.path() / "record.jsonl",
                    again = directory.path() / "again.jsonl";
  std::ofstream(prompts) << "{\"prompt\": [5], \"priority\": 3}\n{\"prompt\": [6, 7]}\n"
                            "{\"prompt\": [7, 8, 9], \"priority\": -2}\n";
  const std::string options = std::string(kTiny) + "--max-num-seqs 1 ";
  result_of(options + "--dataset " + prompts + " --output-len 2 --profile-out " + record);
  result_of(options + "--scheduling-policy priority --replay-speed inf --replay " + record +
            " --profile-out " + again);
  std::vector<int32_t> order;
  for (const EndedRequest& request : read_profile(std::filesystem::path(again)).requests)
    order.push_back(request.priority);
  EXPECT_EQ(order, (std::vector<int32_t>{-2, 0, 3}));
}

TEST(LoadCommand, OptionsWithoutEffectAreRefused) {
  struct Case {
    const char* options;
    const char* named;
  };
  for (const Case& refused :
       {Case{"--endpoint /x", "--endpoint"},
        Case{"--num-prompts 2 --ignore-eos", "--ignore-eos"},
        Case{"--num-prompts 2 --temperature 1", "--temperature"},
        Case{"--goodput ttft:1", "--goodput"},
        Case{"--num-turns 2", "--num-turns"},
        Case{"--num-prompts 2 -p 4", "--n-prompt"},
        Case{"--replay-speed 2", "--replay"},
        Case{"--replay /dev/null --replay-speed 0", "--replay-speed"},
        Case{"--replay /dev/null --replay-speed nan", "--replay-speed"},
        Case{"--replay /dev/null --request-rate 2", "--request-rate"},
        Case{"--replay /dev/null --base-url http://x", "--base-url"},
        Case{"--replay /none", "no such file"},
        Case{"--num-prompts 2 --scheduling-policy priority", "--scheduling-policy"},
        Case{"--num-prompts 2 --burstiness 2", "--burstiness"},
        Case{"--num-prompts 2 -r 4", "--repetitions"},
        Case{"--kernels --num-prompts 2", "--num-prompts"},
        Case{"--kernels --counters --tensor-parallel-size 2", "--tensor-parallel-size: 2, expected 1"},
        Case{"--profile-overhead --num-prompts 2", "--num-prompts"},
        Case{"--base-url http://x --device cpu", "--device"},
        Case{"--base-url http://x --max-num-seqs 4", "--max-num-seqs"},
        Case{"--base-url http://x --profile-out f", "--profile-out"},
        Case{"--base-url http://x -n 4", "--n-gen"},
        Case{"--base-url http://x --endpoint /v1/chat/completions --tokenizer demo", "--tokenizer"},
        Case{"--base-url ftp://x --model m", "expected http[s]://HOST"},
        Case{"--base-url http://x --extra-body [1]", "--extra-body"},
        Case{"--base-url http://x --endpoint v1", "--endpoint"},
        Case{"--num-prompts 2 --request-rate 0", "--request-rate"},
        Case{"--num-prompts 2 --request-rate=-inf", "--request-rate"},
        Case{"--num-prompts 2 --goodput itl:5", "--goodput"},
        Case{"--num-prompts 2 --metric-percentiles 101", "--metric-percentiles"},
        Case{"--num-prompts 2 --percentile-metrics x", "--percentile-metrics"}})
    EXPECT_THAT(refusal_of(refused.options), HasSubstr(refused.named)) << refused.options;
}

TEST(LoadCommandDeathTest, CtrlCEndsTheTestAndThenTheProgramByTheSignal) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto interrupted = [&] {
    std::atomic<int> num_requests = 0;
    const ScriptedServer server([&](ServedRequest& request) {
      if (num_requests++ == 3) {
        kill(getpid(), SIGINT);
        std::this_thread::sleep_for(std::chrono::seconds(20));
      }
      stream_completion(request, 2);
      return true;
    });
    bench(fmt::format("--base-url {} --model m --num-prompts 50 --max-concurrency 1", server.url()));
  };
  EXPECT_EXIT(interrupted(), testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace minfer
