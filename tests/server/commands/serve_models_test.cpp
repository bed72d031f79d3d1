// `minfer serve` with several models: real ones, their files, and the options that go with them.
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include "models/decoder/weights/model_source.h"
#include "tests/support/paths.h"
#include "tests/support/server/commands_fixture.h"
#include "tests/support/server/raw_client.h"
#include "tests/support/server/server_process.h"

namespace minfer {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

constexpr const char* kDemoName = "minfer-demo";
constexpr const char* kSyntheticName = "synthetic:tiny:q8_0";
const std::vector<std::string> kSmallServer{"--device",        "cpu", "--threads",    "1",
                                            "--max-model-len", "256", "--num-blocks", "64"};

std::vector<std::string> with_small(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), kSmallServer.begin(), kSmallServer.end());
  return arguments;
}

RawClient::Response complete_with(uint16_t port, const std::string& model) {
  return RawClient(port).request(
      "POST", "/v1/completions",
      fmt::format(
          R"({{"model":"{}","prompt":"Once upon a time","max_tokens":24,"temperature":0,"ignore_eos":true}})",
          model));
}

/// The text of the answer, or the error.
std::string text_with(uint16_t port, const std::string& model) {
  const auto response = complete_with(port, model);
  if (response.status != 200) return fmt::format("{}: {}", response.status, response.body);
  return Json::parse(response.body)["choices"][0]["text"];
}

/// The answer of a server with that model alone.
std::string text_alone(const std::string& spec, const std::string& name) {
  ServerProcess process(minfer_binary(), with_small({"--model", spec}));
  return text_with(process.wait_until_serving(), name);
}

void expect_ends(ServerProcess& process) {
  process.signal(SIGTERM);
  const std::optional<int> status = process.wait();
  ASSERT_TRUE(status.has_value()) << process.log();
  EXPECT_TRUE(WIFEXITED(*status) && WEXITSTATUS(*status) == 0) << *status << "\n" << process.log();
}

TEST(ServeModelsTest, AnswersAreThoseOfServersWithOneModel) {
  const std::string of_demo = text_alone("", kDemoName), of_tiny = text_alone(kSyntheticName, kSyntheticName);
  ASSERT_NE(of_demo, of_tiny);
  for (const char* max_loaded : {"1", "2"}) {
    ServerProcess process(minfer_binary(),
                          with_small({"--model", "", "--model", kSyntheticName, "--max-loaded", max_loaded}));
    const uint16_t port = process.wait_until_serving();
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(text_with(port, kSyntheticName), of_tiny);
      EXPECT_EQ(text_with(port, kDemoName), of_demo);
    }
    EXPECT_THAT(process.log(), HasSubstr("minfer-demo, synthetic:tiny:q8_0, at most"));
    expect_ends(process);
  }
}

TEST(ServeModelsTest, NamesMapInOrder) {
  ServerProcess process(minfer_binary(),
                        with_small({"--model", "", "--model", kSyntheticName, "--served-model-name", "large",
                                    "small", "--max-loaded", "1"}));
  const uint16_t port = process.wait_until_serving();
  EXPECT_EQ(text_with(port, "small"), text_alone(kSyntheticName, kSyntheticName));
  EXPECT_EQ(complete_with(port, kSyntheticName).status, 404);
  std::vector<std::string> names;
  const Json answer = Json::parse(RawClient(port).request("GET", "/v1/models").body);
  for (const Json& model : answer["data"])
    names.push_back(model["id"]);
  EXPECT_THAT(names, testing::ElementsAre("large", "small"));
}

class ServeModelFilesTest : public test::CommandsFixture {
 protected:
  std::string write_demo(const std::string& file, size_t num_bytes = SIZE_MAX) {
    const std::span<const std::byte> demo = embedded_demo_model();
    line().write(file, {reinterpret_cast<const char*>(demo.data()), std::min(num_bytes, demo.size())});
    return path(file).string();
  }
};

TEST_F(ServeModelFilesTest, AFileThatIsGoneOrDamagedIsA503UntilItIsBack) {
  const std::string file = write_demo("a.gguf");
  ServerProcess process(minfer_binary(),
                        with_small({"--model", file, "--model", kSyntheticName, "--max-loaded", "1"}));
  const uint16_t port = process.wait_until_serving();
  const std::string before = text_with(port, "a");
  const auto expect_failure = [&] {
    EXPECT_EQ(complete_with(port, kSyntheticName).status, 200);
    const auto response = complete_with(port, "a");
    EXPECT_EQ(response.status, 503);
    EXPECT_THAT(response.body, HasSubstr("The model `a` cannot be loaded: ")) << response.body;
    EXPECT_THAT(response.body, HasSubstr("a.gguf"));
    EXPECT_EQ(RawClient(port).request("GET", "/health").status, 200);
  };
  std::filesystem::remove(file);
  expect_failure();
  write_demo("a.gguf", 1000);
  expect_failure();
  write_demo("a.gguf", embedded_demo_model().size() - 1000);
  expect_failure();
  write_demo("a.gguf");
  EXPECT_EQ(text_with(port, "a"), before);
  expect_ends(process);
}

TEST_F(ServeModelFilesTest, AModelThatHasNoRoomIsToldSo) {
  ServerProcess process(minfer_binary(), with_small({"--model", kSyntheticName, "--model",
                                                     write_demo("a.gguf"), "--max-loaded-memory", "3MB"}));
  const uint16_t port = process.wait_until_serving();
  EXPECT_EQ(complete_with(port, kSyntheticName).status, 200);
  const auto refused = complete_with(port, "a");
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.body, HasSubstr("`a` needs"));
  EXPECT_THAT(refused.body, HasSubstr("3145728"));
  EXPECT_THAT(process.log(), HasSubstr("a model needs more memory"));
}

TEST_F(ServeModelFilesTest, WhatCannotGoTogetherIsRefusedByName) {
  const std::string a = write_demo("a.gguf");
  std::filesystem::create_directory(path("other"));
  const std::string same_name = write_demo("other/a.gguf");
  const std::string two = "serve --port 0 --model synthetic:tiny --model '' ";
  struct Refusal {
    std::string arguments;
    std::vector<std::string> words;
  };
  for (const Refusal& refusal : {
           Refusal{two + "--tensor-parallel-size 2", {"--tensor-parallel-size", "one model"}},
           {two + "--speculative-model synthetic:tiny", {"--speculative-model", "one model"}},
           {two + "--kv-cache-dir .", {"--kv-cache-dir"}},
           {two + "--kv-events-endpoint 'tcp://127.0.0.1:1'", {"--kv-events-endpoint"}},
           {two + "--profile-out p.jsonl", {"--profile-out"}},
           {two + "--profile-range 1:2", {"--profile-range"}},
           {two + "--served-model-name x", {"--served-model-name", "1 names", "2 models"}},
           {two + "--served-model-name x '*'", {"--served-model-name", "'*'"}},
           {two + "--served-model-name x x", {"name x", "--served-model-name"}},
           {"serve --port 0 --model " + a + " --model " + same_name, {"name a", "--served-model-name"}},
           {"serve --port 0 --model " + a + " --model missing.gguf", {"missing.gguf"}},
           {"serve --port 0 --model '' --max-loaded 1", {"--max-loaded", "several models"}},
           {"serve --port 0 --unload-after 5", {"--unload-after", "several models"}},
       }) {
    const test::Outcome outcome = minfer(refusal.arguments);
    EXPECT_NE(outcome.exit_code, 0) << refusal.arguments;
    for (const std::string& word : refusal.words)
      EXPECT_THAT(outcome.err, HasSubstr(word)) << refusal.arguments;
  }
}

}  // namespace
}  // namespace minfer
