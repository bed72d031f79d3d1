// The built program as people use it: exit codes, messages and output of run and bench.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "models/decoder/weights/model_source.h"
#include "tests/support/server/commands_fixture.h"

namespace minfer {
namespace {

using nlohmann::json;
using testing::ElementsAre;

using test::contains;
using test::Outcome;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

class CommandsTest : public test::CommandsFixture {};

// Errors that every command with a model reports.

TEST_F(CommandsTest, AModelFileThatIsMissingOrNoGgufIsNamed) {
  write_file(path("bad.gguf"), "not a model");
  for (const std::string command : {"run x", "bench", "eval --text stdin"}) {
    const Outcome missing = minfer(command + " --model none.gguf");
    EXPECT_EQ(missing.exit_code, 1) << command;
    EXPECT_TRUE(contains(missing.err, "minfer: error: ") && contains(missing.err, "none.gguf"))
        << missing.err;
    const Outcome bad = minfer(command + " --model bad.gguf");
    EXPECT_EQ(bad.exit_code, 1) << command;
    EXPECT_TRUE(contains(bad.err, "bad.gguf") && contains(bad.err, "GGUF")) << bad.err;
  }
}

TEST_F(CommandsTest, UnknownSyntheticModelsAndTypesListTheKnownOnes) {
  const Outcome model = minfer("run --model synthetic:gpt-9 x");
  EXPECT_EQ(model.exit_code, 1);
  for (const char* known :
       {"gpt-9", "llama-3.2-1b", "llama-3.1-8b", "qwen3-0.6b", "qwen3-8b", "mistral-7b", "llama-272m",
        "qwen3-30b-a3b", "mixtral-8x7b", "gpt-oss-20b", "olmoe-1b-7b", "glm-4.5-air", "tiny", "tiny-moe"})
    EXPECT_TRUE(contains(model.err, known)) << known << " in " << model.err;
  const Outcome type = minfer("run --model synthetic:tiny:q9 x");
  EXPECT_EQ(type.exit_code, 1);
  for (const char* known : {"q9", "f32", "bf16", "q8_0", "q4_k_m"})
    EXPECT_TRUE(contains(type.err, known)) << known << " in " << type.err;
}

TEST_F(CommandsTest, OutputThatCannotBeWrittenIsAnError) {
  ASSERT_EQ(minfer(std::string("bench -p 0 -n 4 -r 1 --profile-out steps.jsonl ") + kTiny).exit_code, 0);
  write_file(path("story.txt"), "Once upon a time there was a little engine that could say why.");
  const std::string tiny(kTiny);
  for (const std::string& command :
       {"run x -n 4 -q " + tiny, "bench -p 0 -n 4 -r 1 " + tiny, "bench -p 0 -n 4 -r 1 -o jsonl " + tiny,
        "eval --text story.txt --window 8 " + tiny, std::string("tokenize x"),
        std::string("tokenize --ids x"), std::string("tokenize --decode 5"), std::string("inspect"),
        std::string("inspect -o json"), std::string("profile report steps.jsonl"),
        std::string("profile report steps.jsonl --step 1"), std::string("profile explain steps.jsonl"),
        std::string("profile trace steps.jsonl -o trace.json"),
        std::string("profile diff steps.jsonl steps.jsonl"),
        std::string("profile view steps.jsonl -o view.html"), std::string("completion bash"),
        std::string("--help"), std::string("--version"), std::string("run --help")}) {
    const Outcome outcome = minfer(command + " >/dev/full");
    EXPECT_EQ(outcome.exit_code, 1) << command;
    EXPECT_TRUE(contains(outcome.err, "minfer: error: cannot write to ") &&
                contains(outcome.err, "No space left on device"))
        << command << ": " << outcome.err;
  }
}

TEST_F(CommandsTest, AProfileIsARegularFile) {
  for (const std::string& command :
       {std::string("report"), std::string("explain"), std::string("trace -o t.json"),
        std::string("view -o v.html"), std::string("diff /dev/zero")}) {
    const Outcome outcome = line().shell("mkfifo pipe; timeout 60 minfer profile " + command + " pipe");
    EXPECT_EQ(outcome.exit_code, 1) << command;
    EXPECT_TRUE(contains(outcome.err, "expected a regular file")) << command << ": " << outcome.err;
  }
}

TEST_F(CommandsTest, CudaIsRefusedWhereThereIsNone) {
  const Outcome outcome = minfer("run --device cuda x");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_TRUE(contains(outcome.err, "device cuda")) << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

TEST_F(CommandsTest, WhatTheCommandLineDoesNotKnowExitsWith2) {
  for (const char* arguments : {"", "fly", "run --no-such-option x", "bench -o yaml", "run --device tpu x",
                                "eval --text none.txt", "run --threads many x"}) {
    const Outcome outcome = minfer(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_NE(outcome.err, "") << arguments;
  }
  EXPECT_EQ(minfer("--help").exit_code, 0);
  EXPECT_EQ(minfer("--version").exit_code, 0);
}

TEST_F(CommandsTest, OptionsOutOfRangeAreNamed) {
  for (const char* option : {"--max-num-seqs 0", "--block-size 0", "--max-model-len 99999",
                             "--temperature -1", "--top-p 2", "--logit-bias x", "--stream-interval 0"}) {
    const Outcome outcome = minfer(std::string("run x ") + option);
    EXPECT_EQ(outcome.exit_code, 1) << option;
    const std::string name = std::string(option).substr(2, std::string(option).find(' ') - 2);
    EXPECT_TRUE(std::regex_search(outcome.err, std::regex(std::regex_replace(name, std::regex("-"), "[-_]"))))
        << outcome.err;
  }
}

TEST_F(CommandsTest, QuantizationIsAnOptionOfEveryCommandWithAModel) {
  for (const char* command : {"run", "serve", "bench", "eval", "inspect"})
    EXPECT_TRUE(contains(minfer(std::string(command) + " --help").out, "--quantization")) << command;
  const Outcome unknown = minfer("run --quantization int8 x");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_TRUE(contains(unknown.err, "\"int8\", expected one of none, fp8")) << unknown.err;
  for (const char* command : {"run x", "bench", "inspect"}) {
    const bool is_demo = std::string(command) == "inspect";
    const Outcome nothing = minfer(std::string(command) + " --quantization fp8 " + (is_demo ? "" : kTiny));
    EXPECT_EQ(nothing.exit_code, 1) << command;
    EXPECT_TRUE(contains(nothing.err, "the matrices of its layers are q8_0, expected")) << nothing.err;
  }
}

TEST_F(CommandsTest, QuantizationIsInWhatIsMeasured) {
  const std::string bench = "bench -m synthetic:tiny:bf16 --quantization fp8 --device cpu --threads 1 ";
  const Outcome speed = minfer(bench + "-p 8 -n 2 -r 1 -o jsonl --profile-out " + path("p.jsonl").string());
  ASSERT_EQ(speed.exit_code, 0) << speed.err;
  EXPECT_EQ(json::parse(speed.out.substr(0, speed.out.find('\n')))["model_type"], "llama fp8");
  const std::string profile = read_file(path("p.jsonl"));
  const json header = json::parse(profile.substr(0, profile.find('\n')))["header"];
  EXPECT_EQ(header["options"]["quantization"], "fp8");
  const Outcome report = minfer("profile report " + path("p.jsonl").string());
  EXPECT_TRUE(contains(report.out, "bf16 to fp8")) << report.out;
  const Outcome op = minfer(bench + "--kernels --op qkv --tokens 1 -r 1 -o jsonl");
  ASSERT_EQ(op.exit_code, 0) << op.err;
  EXPECT_EQ(json::parse(op.out)["type"], "fp8");
}

// run

TEST_F(CommandsTest, RunGeneratesAndSaysHowFast) {
  const Outcome outcome = minfer("run --max-tokens 12 --ignore-eos 'Once upon a time'");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_GT(outcome.out.size(), 20u);
  EXPECT_TRUE(std::regex_search(outcome.err, std::regex("time to first token [0-9.]+ ms; [0-9.]+ tokens/s")))
      << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "12 generated (length)")) << outcome.err;
  const Outcome quiet = minfer("run --quiet --max-tokens 12 --ignore-eos 'Once upon a time'");
  EXPECT_EQ(quiet.err, "");
  EXPECT_EQ(quiet.out, outcome.out) << "greedy repeats itself";
}

TEST_F(CommandsTest, RunSaysThatAnAnswerIsCutOffBeforeItIsWhole) {
  std::ofstream(path("schema.json"))
      << R"({"type":"object","properties":{"a":{"type":"string"}},"required":["a"]})";
  const std::string schema = "run --quiet --json-schema " + path("schema.json").string();
  for (const std::string& arguments : {schema + " -n 2 x", schema + " -n 2 --chat x </dev/null"}) {
    const Outcome cut = minfer(arguments);
    EXPECT_EQ(cut.exit_code, 1) << arguments;
    EXPECT_TRUE(contains(cut.err, "cut off after 2 tokens, before it satisfies")) << cut.err;
    EXPECT_NE(cut.out, "");
  }
  // Also cut off, but these are all tokens that were requested.
  EXPECT_EQ(minfer("run --quiet --regex '[a-z]{1,80}' -n 3 x").exit_code, 0);
  EXPECT_EQ(minfer("run --quiet -n 3 x").exit_code, 0);
  EXPECT_TRUE(contains(minfer("run --help").out, "cut off before its end is an error"));
}

TEST_F(CommandsTest, RunReadsItsPromptFromStandardInput) {
  const Outcome argument = minfer("run --max-tokens 12 'Once upon a time'");
  const Outcome input = minfer("run --max-tokens 12", "Once upon a time");
  EXPECT_EQ(input.exit_code, 0);
  EXPECT_EQ(input.out, argument.out);
}

TEST_F(CommandsTest, RunStopsAtAStopString) {
  const Outcome whole = minfer("run -q --max-tokens 30 --ignore-eos 'Once upon a time'");
  const Outcome stopped = minfer("run --max-tokens 30 --ignore-eos --stop was 'Once upon a time'");
  ASSERT_TRUE(contains(whole.out, "was")) << whole.out;
  EXPECT_EQ(stopped.out, whole.out.substr(0, whole.out.find("was")) + "\n");
  EXPECT_TRUE(contains(stopped.err, "(stop)")) << stopped.err;
}

TEST_F(CommandsTest, ChatAnswersEachLine) {
  const Outcome outcome = minfer("run --chat --quiet", "What is 22 plus 39?\nWhat is 30 plus 29?\n");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "22 plus 39 is 61.")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "30 plus 29 is 59.")) << outcome.out;
}

TEST_F(CommandsTest, ChatHasCommands) {
  const Outcome outcome = minfer("run --chat --quiet", "/help\n/nope\n/exit\nWhat is 22 plus 39?\n");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(contains(outcome.err, "/exit or the end of the input ends")) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "/nope: no such command")) << outcome.err;
  EXPECT_NE(minfer("run --chat --quiet -n 4", "/usr/bin is\n").out, "");
}

// bench

TEST_F(CommandsTest, SpeedTestsPrintLlamaBenchsFields) {
  const Outcome outcome = minfer(std::string("bench -p 32,64 -n 8 -r 3 -o json ") + kTiny);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json results = json::parse(outcome.out);
  ASSERT_TRUE(results.is_array());
  ASSERT_EQ(results.size(), 3u);
  const int prompt[] = {32, 64, 0}, generated[] = {0, 0, 8};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(results[i].at("n_prompt"), prompt[i]);
    EXPECT_EQ(results[i].at("n_gen"), generated[i]);
    EXPECT_EQ(results[i].at("samples_ns").size(), 3u);
    const double tokens = prompt[i] + generated[i];
    EXPECT_GT(results[i].at("avg_ts").get<double>(), 0.0);
    EXPECT_NEAR(results[i].at("samples_ts")[0].get<double>(),
                tokens * 1e9 / results[i].at("samples_ns")[0].get<double>(), 1e-3);
    for (const char* field :
         {"model_type", "model_size", "model_n_params", "n_threads", "stddev_ts", "avg_ns"})
      EXPECT_TRUE(results[i].contains(field)) << field;
  }
}

TEST_F(CommandsTest, BenchMeasuresOpsByThemselves) {
  const std::string kernels = "bench --kernels --device cpu --threads 1 -r 2 -m synthetic:tiny:q8_0 ";
  const Outcome outcome = minfer(kernels + "--op rms_norm,qkv --tokens 1,3 -o jsonl");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  std::istringstream lines(outcome.out);
  std::vector<std::string> measured;
  for (std::string line; std::getline(lines, line);) {
    const json result = json::parse(line);
    measured.push_back(fmt::format("{} {}", result["op"].get<std::string>(), result["m"].get<int>()));
    EXPECT_GT(result["us"], 0.0);
    EXPECT_GT(result["gbps"], 0.0);
  }
  EXPECT_EQ(measured, (std::vector<std::string>{"rms_norm 1", "rms_norm 3", "qkv 1", "qkv 3"}));
  EXPECT_TRUE(contains(minfer(kernels + "--op rms_norm --tokens 1").out, "rms_norm"));
  const Outcome unknown = minfer(kernels + "--op softmax");
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_TRUE(contains(unknown.err, "\"softmax\"") && contains(unknown.err, "rms_norm")) << unknown.err;
  const Outcome ranks = minfer(kernels + "--tp 2");
  EXPECT_EQ(ranks.exit_code, 1);
  EXPECT_TRUE(contains(ranks.err, "tensor-parallel-size: 2")) << ranks.err;
}

TEST_F(CommandsTest, BenchMeasuresWhatRecordingCosts) {
  const auto tests_of = [&](const std::string& options) {
    const Outcome outcome = minfer("bench --profile-overhead -r 1 -o jsonl " + options + " " + kTiny);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    std::istringstream lines(outcome.out);
    std::vector<std::string> tests;
    for (std::string line; std::getline(lines, line);) {
      const json result = json::parse(line);
      tests.push_back(fmt::format("p{} n{} x{}", result.at("n_prompt").get<int>(),
                                  result.at("n_gen").get<int>(), result.at("n_parallel").get<int>()));
      EXPECT_EQ(result.at("samples_overhead").size(), 20u);
      EXPECT_LE(result.at("overhead_p25"), result.at("overhead"));
      EXPECT_LE(result.at("overhead"), result.at("overhead_p75"));
    }
    return tests;
  };
  EXPECT_THAT(tests_of("-n 2 --parallel 1,2"), ElementsAre("p0 n2 x1", "p0 n2 x2"));
  EXPECT_THAT(tests_of("-p 8 -n 2 --parallel 2"), ElementsAre("p8 n0 x2", "p0 n2 x2"));
}

TEST_F(CommandsTest, PrefixCachingIsForLoadTests) {
  for (const char* option : {"--enable-prefix-caching", "--no-enable-prefix-caching"}) {
    for (const char* test : {"-p 16 -n 0", "--profile-overhead"}) {
      const Outcome outcome = minfer(fmt::format("bench {} -r 1 {} {}", test, option, kTiny));
      EXPECT_EQ(outcome.exit_code, 1) << test;
      EXPECT_TRUE(contains(outcome.err, "prefix-caching") && contains(outcome.err, "load tests"))
          << outcome.err;
    }
    const Outcome load =
        minfer(fmt::format("bench --num-prompts 2 --input-len 4 --output-len 2 {} {}", option, kTiny));
    EXPECT_EQ(load.exit_code, 0) << load.err;
  }
}

TEST_F(CommandsTest, GuessesOfASyntheticModelAreAcceptedAsOftenAsAskedFor) {
  const std::string draft = std::string("bench ") + kTiny +
                            "-p 0 -n 32 -r 1 --speculative-model synthetic:tiny:q8_0 "
                            "--no-adaptive-speculation --num-speculative-tokens 3 ";
  const std::string record = " --profile-out " + path("steps.jsonl").string();
  const auto tokens_of_steps = [&] {
    std::istringstream lines(read_file(path("steps.jsonl")));
    std::pair<int64_t, int64_t> counts;  // drafted, accepted
    for (std::string line; std::getline(lines, line);) {
      const json step = json::parse(line);
      if (!step.contains("batch")) continue;
      const json drafts = step["batch"].value("speculation", json::object());
      counts.first += drafts.value("draft_tokens", 0);
      counts.second += drafts.value("accepted_tokens", 0);
    }
    return counts;
  };
  ASSERT_EQ(minfer(draft + "--synthetic-acceptance-rate 1" + record).exit_code, 0);
  const auto [all, right] = tokens_of_steps();
  EXPECT_GT(all, 0);
  EXPECT_EQ(right, all);
  ASSERT_EQ(minfer(draft + "--synthetic-acceptance-rate 0" + record).exit_code, 0);
  EXPECT_EQ(tokens_of_steps().second, 0);
  const Outcome off = minfer(std::string("bench ") + kTiny + "-n 4 --synthetic-acceptance-rate 0.5");
  EXPECT_TRUE(contains(off.err, "--synthetic-acceptance-rate: expected only with --speculative")) << off.err;
  const Outcome real = minfer("bench -n 4 --speculative ngram --synthetic-acceptance-rate 0.5");
  EXPECT_TRUE(contains(real.err, "--synthetic-acceptance-rate: --model \"\", expected synthetic:NAME"))
      << real.err;
}

TEST_F(CommandsTest, SpeedTestsInEveryFormat) {
  const std::string base = std::string("bench -p 16 -n 4 -r 1 ") + kTiny;
  const Outcome lines = minfer(base + "-o jsonl");
  EXPECT_EQ(json::parse(lines.out.substr(0, lines.out.find('\n'))).at("n_prompt"), 16);
  EXPECT_TRUE(contains(minfer(base + "-o csv").out, "n_prompt"));
  for (const char* format : {"table", "md"}) {
    const Outcome outcome = minfer(base + "-o " + format);
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_TRUE(contains(outcome.out, "pp16") && contains(outcome.out, "tg4")) << outcome.out;
  }
  EXPECT_EQ(minfer(std::string("bench -p 0 -n 0 ") + kTiny).exit_code, 1);
}

TEST_F(CommandsTest, LoadTestsPrintAndSaveVllmsNames) {
  const Outcome outcome = minfer(std::string("bench --num-prompts 6 --input-len 20 --output-len 5 "
                                             "--max-concurrency 3 -o json --result-filename result.json ") +
                                 kTiny);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json printed = json::parse(outcome.out);
  const json saved = json::parse(read_file(path("result.json")));
  const json& result = printed.is_array() ? printed.at(0) : printed;
  EXPECT_EQ(result, saved);
  EXPECT_EQ(result.at("completed"), 6);
  EXPECT_EQ(result.at("total_input_tokens"), 120);
  EXPECT_EQ(result.at("total_output_tokens"), 30);
  EXPECT_EQ(result.at("max_concurrency"), 3);
  for (const char* metric : {"ttft", "tpot", "itl", "e2el"}) {
    for (const char* statistic : {"mean_", "median_", "std_", "p99_"})
      EXPECT_TRUE(result.at(std::string(statistic) + metric + "_ms").is_number()) << statistic << metric;
  }
  for (const char* rate : {"request_throughput", "output_throughput", "total_token_throughput", "duration"})
    EXPECT_GT(result.at(rate).get<double>(), 0.0) << rate;
}

TEST_F(CommandsTest, LoadTestsReadADataset) {
  write_file(path("prompts.jsonl"), "{\"prompt\": \"hello\", \"output_len\": 3}\n{\"prompt\": [5, 6, 7]}\n");
  const Outcome outcome =
      minfer(std::string("bench --dataset prompts.jsonl --output-len 4 -o jsonl ") + kTiny);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out).at("total_output_tokens"), 7);
  write_file(path("prompts.jsonl"), "{\"prompt\": \"hello\"}\n{\"text\": 1}\n");
  const Outcome bad = minfer(std::string("bench --dataset prompts.jsonl ") + kTiny);
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_TRUE(contains(bad.err, "prompts.jsonl:2")) << bad.err;
}

/// Request ids in the order in which they first took part in a step.
std::vector<std::string> order_of_service(const std::filesystem::path& profile) {
  std::ifstream file(profile);
  std::vector<std::string> order;
  for (std::string line; std::getline(file, line);) {
    const json step = json::parse(line);
    if (!step.contains("requests")) continue;
    for (const std::string id : step.at("requests")) {
      if (std::ranges::find(order, id) == order.end()) order.push_back(id);
    }
  }
  return order;
}

TEST_F(CommandsTest, ADatasetsPrioritiesDecideTheOrderOfServiceIfAskedTo) {
  write_file(path("prompts.jsonl"),
             "{\"prompt\": [5], \"priority\": 3}\n{\"prompt\": [6]}\n{\"prompt\": [7], \"priority\": -2}\n");
  const std::string command =
      std::string(
          "bench --dataset prompts.jsonl --output-len 2 --max-num-seqs 1 --profile-range 0:100 "
          "--profile-out p.jsonl ") +
      kTiny;
  ASSERT_EQ(minfer(command).exit_code, 0);
  EXPECT_EQ(order_of_service(path("p.jsonl")), (std::vector<std::string>{"bench-0", "bench-1", "bench-2"}));
  ASSERT_EQ(minfer(command + "--scheduling-policy priority").exit_code, 0);
  EXPECT_EQ(order_of_service(path("p.jsonl")), (std::vector<std::string>{"bench-2", "bench-1", "bench-0"}));
  for (const char* bad : {"\"high\"", "1.5", "9999999999", "18446744073709551615"}) {
    write_file(path("prompts.jsonl"), fmt::format("{{\"prompt\": [5], \"priority\": {}}}\n", bad));
    const Outcome outcome = minfer(command);
    EXPECT_EQ(outcome.exit_code, 1) << bad;
    EXPECT_TRUE(contains(outcome.err, "prompts.jsonl:1") && contains(outcome.err, "priority")) << outcome.err;
  }
}

TEST_F(CommandsTest, ASchedulingPolicyIsRefusedWhereAllPrioritiesAreTheSame) {
  for (const char* command : {"run x", "eval --text stdin", "bench -p 8 -n 0", "bench --num-prompts 2"}) {
    const Outcome outcome = minfer(std::string(command) + " --scheduling-policy priority");
    EXPECT_EQ(outcome.exit_code, 2) << command;
    EXPECT_TRUE(contains(outcome.err, "--scheduling-policy")) << outcome.err;
  }
}

}  // namespace
}  // namespace minfer
