// The examples of --help work as written, and so do the commands that a server prints at its start.
#include <regex>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "models/decoder/weights/model_source.h"
#include "server/terminal/greeting.h"
#include "tests/support/paths.h"
#include "tests/support/server/command_line.h"
#include "tests/support/server/server_process.h"

namespace minfer {
namespace {

using test::Outcome;
using testing::HasSubstr;
using testing::Not;

/// Writes the files that the examples name.
void write_files(const test::CommandLine& line) {
  const std::span<const std::byte> demo = embedded_demo_model();
  for (const char* file : {"llama.gguf", "qwen.gguf"})
    line.write(file, {reinterpret_cast<const char*>(demo.data()), demo.size()});
  std::string story;
  for (int i = 0; i < 40; ++i)
    story += "Once upon a time there was a little girl who had a red ball. ";
  line.write("story.txt", story);
  line.write("ids.txt", "1 5 6 7\n");
  line.write("conversation.json", R"({"messages": [{"role": "user", "content": "What is 23 plus 45?"}]})");
}

/// The indented lines below "Examples:".
std::vector<std::string> examples_of(const std::string& help) {
  std::istringstream lines(help.substr(std::min(help.find("Examples:\n"), help.size())));
  std::vector<std::string> examples;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  ")) examples.push_back(line.substr(2));
  }
  return examples;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return std::regex_replace(text, std::regex(from), to);
}

class HelpTest : public testing::TestWithParam<const char*> {
 protected:
  HelpTest() { write_files(line_); }

  void expect_works(const std::string& example, const std::string& port) const {
    const Outcome outcome = line_.shell(replaced(example, ":8000", ":" + port));
    EXPECT_EQ(outcome.exit_code, 0) << example << "\n" << outcome.err;
    EXPECT_NE(outcome.out, "") << example;
    EXPECT_THAT(outcome.out, Not(HasSubstr("\"error\""))) << example;
  }
  /// Starts `minfer serve ...` on its own port and gets an answer.
  void expect_serves(const std::string& example) const {
    std::istringstream words(replaced(replaced(example, "--port \\d+", ""), "0\\.0\\.0\\.0", "127.0.0.1"));
    std::vector<std::string> arguments;
    for (std::string word; words >> word;)
      arguments.push_back(word.ends_with(".gguf") ? line_.path(word).string() : word);
    arguments.erase(arguments.begin(), arguments.begin() + 2);
    EXPECT_NE(ServerProcess(minfer_binary(), arguments).wait_until_serving(), 0) << example;
  }

  test::CommandLine line_;
};

TEST_P(HelpTest, ItsExamplesWork) {
  const std::string command = GetParam();
  const Outcome help = line_.minfer(command + " --help");
  ASSERT_EQ(help.exit_code, 0);
  const std::vector<std::string> examples = examples_of(help.out);
  EXPECT_GE(examples.size(), 3u) << help.out;
  std::unique_ptr<ServerProcess> server;
  std::string port;
  if (help.out.find("127.0.0.1:8000/v1") != std::string::npos || command == "bench") {
    server = std::make_unique<ServerProcess>(minfer_binary(), std::vector<std::string>{});
    port = std::to_string(server->wait_until_serving());
  }
  for (const std::string& example : examples) {
    if (example.starts_with("minfer serve")) {
      expect_serves(example);
    } else if (!example.starts_with("curl") || line_.shell("command -v curl").exit_code == 0) {
      expect_works(example, port);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Commands, HelpTest,
                         testing::Values("", "run", "serve", "bench", "eval", "tokenize", "inspect",
                                         "profile report", "profile diff", "profile trace", "profile explain",
                                         "profile view"),
                         [](const auto& command) {
                           const std::string name = command.param;
                           return name.empty() ? "minfer" : replaced(name, " ", "_");
                         });

// The first lines of a server

ServingFacts some_facts() {
  return {.url = "http://127.0.0.1:8000",
          .model_name = "minfer-demo",
          .model = "the embedded demo model",
          .backend = {.name = "cpu", .device = "Some Processor", .threads = 2},
          .options = {.max_model_len = 2048, .num_blocks = 77'160, .kv_cache_dtype = DType::f32},
          .max_queue_size = 999};
}

TEST(GreetingTest, SaysWhatAPersonWantsToKnow) {
  const std::string text = greeting(some_facts());
  for (const char* part :
       {"minfer-demo (the embedded demo model)", "cpu: Some Processor, 2 threads", "2,048 tokens",
        "1,234,560 tokens", "f32 in blocks of 16", "256 at once", "999 more",
        "curl http://127.0.0.1:8000/v1/completions -d '{\"model\":\"minfer-demo\","})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(text, Not(HasSubstr("Authorization")));
}

TEST(GreetingTest, SaysHowManyRanksShareTheModel) {
  ServingFacts facts = some_facts();
  EXPECT_THAT(greeting(facts), Not(HasSubstr("ranks")));
  facts.options.tensor_parallel_size = 2;
  EXPECT_THAT(greeting(facts), HasSubstr("  ranks      2 share the model\n"));
  facts.backend.all_reduce = "all-reduce by NCCL";
  EXPECT_THAT(greeting(facts), HasSubstr("  ranks      2 share the model; all-reduce by NCCL\n"));
}

TEST(GreetingTest, SaysWhatStatesTake) {
  ServingFacts facts = some_facts();
  EXPECT_THAT(greeting(facts), Not(HasSubstr("states")));
  facts.options.num_state_slots = 100;
  facts.state_slot_bytes = (int64_t{192} << 20) + 1;
  EXPECT_THAT(
      greeting(facts),
      HasSubstr("  states     19,201 MiB of sequences that run, no copies: prefixes are not shared\n"));
  facts.options.num_state_copies = 1200;
  EXPECT_THAT(greeting(facts),
              HasSubstr("of sequences that run, 230,401 MiB of 1,200 copies for the prefix cache\n"));
}

TEST(GreetingTest, SaysWhatWeightsHaveBecome) {
  ServingFacts facts = some_facts();
  EXPECT_THAT(greeting(facts), Not(HasSubstr("weights")));
  facts.options.quantization = DType::fp8;
  EXPECT_THAT(greeting(facts), HasSubstr("  weights    of layers made fp8 at load\n"));
}

TEST(GreetingTest, ItsCommandReachesAServerOfEveryAddressWithAKey) {
  ServingFacts facts = some_facts();
  facts.url = "http://0.0.0.0:80";
  facts.needs_key = true;
  EXPECT_THAT(
      greeting(facts),
      HasSubstr("curl http://127.0.0.1:80/v1/completions -H \"Authorization: Bearer $MINFER_API_KEY\" -d"));
  facts.url = "http://[::]:80";
  EXPECT_THAT(greeting(facts), HasSubstr("curl http://[::1]:80/v1"));
}

/// The server's log, once it contains `part`.
std::string log_with(const ServerProcess& server, const std::string& part) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (server.log().find(part) == std::string::npos && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return server.log();
}

TEST(GreetingTest, AServersFirstLinesHoldACommandThatWorks) {
  const test::CommandLine line;
  if (line.shell("command -v curl").exit_code != 0) GTEST_SKIP() << "curl is not installed";
  // A name that both a shell and JSON would take apart.
  const std::string name = R"(it's "mine" $HOME)";
  ServerProcess server(minfer_binary(), {"--api-key", "sk-1", "--served-model-name", name, "--num-blocks",
                                         "128", "--max-model-len", "1024", "--max-num-seqs", "7"});
  server.wait_until_serving();
  const std::string log = log_with(server, "info serving");
  for (const char* part : {"1,024 tokens", "2,048 tokens", "7 at once"})
    EXPECT_THAT(log, HasSubstr(part));
  EXPECT_THAT(log, HasSubstr("context=1024 kv_cache_tokens=2048 max_num_seqs=7"));
  std::smatch command;
  ASSERT_TRUE(std::regex_search(log, command, std::regex("\n  (curl .*)\n"))) << log;
  const Outcome outcome = line.shell("export MINFER_API_KEY=sk-1; " + command[1].str());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const nlohmann::json answer = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(answer.at("model"), name);
  EXPECT_NE(answer.at("choices")[0].at("text"), "");
}

TEST(GreetingTest, ALogForProgramsHoldsNothingElse) {
  ServerProcess server(minfer_binary(), {"--log-format", "json"});
  server.wait_until_serving();
  std::istringstream lines(log_with(server, "\"serving\""));
  for (std::string line; std::getline(lines, line);)
    EXPECT_TRUE(nlohmann::json::accept(line)) << line;
}

}  // namespace
}  // namespace minfer
