// Commands whose model comes from a hub, which is one of the tests' own.
#include <thread>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "models/decoder/weights/model_source.h"
#include "tests/support/paths.h"
#include "tests/support/server/command_line.h"
#include "tests/support/server/hub_server.h"
#include "tests/support/server/raw_client.h"
#include "tests/support/server/server_process.h"
#include "tests/support/wait.h"

namespace minfer {
namespace {

using test::Outcome;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

std::string demo_bytes() {
  const std::span<const std::byte> demo = embedded_demo_model();
  return {reinterpret_cast<const char*>(demo.data()), demo.size()};
}

/// Makes a shell's commands use this hub, and a cache in the folder of `line`.
std::string environment(const test::HubServer& server, const test::CommandLine& line) {
  return "export HF_ENDPOINT=" + server.url() + " HF_HOME=" + line.path("hf").string() +
         "; unset HF_TOKEN HF_HUB_CACHE HF_HUB_OFFLINE; ";
}

class HubCommandsTest : public testing::Test {
 protected:
  Outcome minfer(const std::string& arguments) const {
    return line_.shell(environment(server_, line_) + "minfer " + arguments);
  }
  /// Standard output of a command that succeeds.
  std::string output(const std::string& arguments) const {
    const Outcome outcome = minfer(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << arguments << ": " << outcome.err;
    return outcome.out;
  }

  test::CommandLine line_;
  test::HubServer server_{{{"demo-Q8_0.gguf", demo_bytes()}, {"demo-mmproj-Q8_0.gguf", "no model"}}};
};

TEST_F(HubCommandsTest, EveryCommandTakesAModelOfAHub) {
  const std::string ids = output("tokenize 'Once upon' --ids");
  const Outcome first = minfer("tokenize hf:org/repo 'Once upon' --ids");
  EXPECT_EQ(first.out, ids);
  EXPECT_THAT(first.err, AllOf(HasSubstr("fetching demo-Q8_0.gguf (5.92 MB)"), HasSubstr(server_.url()),
                               Not(HasSubstr("\x1b"))));
  EXPECT_EQ(output("tokenize -hf org/repo:q8_0 'Once upon' --ids"), ids);
  EXPECT_EQ(output("tokenize --hf-repo org/repo 'Once upon' --ids"), ids);
  EXPECT_EQ(output("run -q hf:org/repo Once -n 4"), output("run -q Once -n 4"));
  EXPECT_EQ(output("run -q -hf org/repo Once -n 4"), output("run -q Once -n 4"));
  EXPECT_THAT(output("inspect --no-tensors hf:org/repo"), HasSubstr("demo-Q8_0.gguf"));
  EXPECT_THAT(output("inspect --no-tensors -hf org/repo"), HasSubstr("demo-Q8_0.gguf"));
  line_.write("ids.txt", "5 6 7");
  EXPECT_THAT(output("eval -hf org/repo --tokens ids.txt --logits out.bin"), HasSubstr("3 positions"));
  EXPECT_THAT(output("bench hf:org/repo -p 8 -n 0 -r 1 -o json"), HasSubstr("demo-Q8_0.gguf"));
  EXPECT_THAT(output("bench -m hf:org/repo --kernels --op rms_norm --tokens 1 -r 1 -o json"),
              HasSubstr("rms_norm"));
  EXPECT_THAT(output("run -q Once -n 4 --speculative-model hf:org/repo"), Not(IsEmpty()));
  EXPECT_EQ(minfer("run -hf org/repo --model x Once").exit_code, 2);
  EXPECT_THAT(minfer("run hf:org Once").err, HasSubstr("hf:ORG/REPO[:QUANT]"));
  EXPECT_THAT(minfer("run hf:org/repo:Q2_K Once").err, HasSubstr("no such GGUF file; there are: Q8_0"));
}

TEST_F(HubCommandsTest, NoRequestIsSentWithoutAHubsName) {
  output("run -q Once -n 2");
  output("models");
  line_.write("m.gguf", demo_bytes());
  output("inspect m.gguf --no-tensors");
  EXPECT_THAT(server_.hub_requests(), IsEmpty());
}

TEST_F(HubCommandsTest, OfflineUsesTheCacheAlone) {
  EXPECT_THAT(minfer("tokenize --offline hf:org/repo x").err,
              AllOf(HasSubstr("offline"), HasSubstr("hf:org/repo")));
  EXPECT_THAT(server_.hub_requests(), IsEmpty());
  output("tokenize hf:org/repo x");
  const size_t requests = server_.hub_requests().size();
  EXPECT_EQ(output("tokenize --offline hf:org/repo x --ids"), output("tokenize x --ids"));
  EXPECT_EQ(server_.hub_requests().size(), requests);
}

TEST_F(HubCommandsTest, ASecondProcessWaitsForTheFirst) {
  std::atomic<bool> may_answer = false;
  server_.set_fault([&](test::ServedRequest&) {
    EXPECT_TRUE(test::wait_until([&] { return may_answer.load(); }));
    return false;
  });
  Outcome both;
  std::thread shell([&] {
    both = line_.shell(
        environment(server_, line_) +
        "minfer tokenize hf:org/repo x --ids >first 2>first.err & minfer tokenize hf:org/repo x --ids "
        ">second 2>second.err; wait");
  });
  EXPECT_TRUE(test::wait_until([&] {
    return (line_.read("first.err") + line_.read("second.err")).find("another process fetches") !=
           std::string::npos;
  }));
  may_answer = true;
  shell.join();
  server_.set_fault(nullptr);
  EXPECT_EQ(line_.read("first"), output("tokenize x --ids"));
  EXPECT_EQ(line_.read("second"), line_.read("first"));
  EXPECT_EQ(server_.stored_bytes_sent(), std::ssize(demo_bytes()));
}

TEST_F(HubCommandsTest, ModelsAreListedShownAndRemoved) {
  EXPECT_THAT(output("models"), HasSubstr("no models in"));
  output("tokenize hf:org/repo x");
  EXPECT_THAT(output("models"), AllOf(HasSubstr("hf:org/repo:Q8_0"), HasSubstr("5.92 MB"), HasSubstr("20")));
  EXPECT_THAT(output("models show hf:org/repo"), AllOf(HasSubstr("5.92 MB"), HasSubstr("demo-Q8_0.gguf")));
  EXPECT_EQ(minfer("models show hf:org/repo:Q4_0").exit_code, 1);
  EXPECT_EQ(minfer("models remove hf:org/other").exit_code, 1);
  EXPECT_EQ(minfer("models remove ../x").exit_code, 1);
  EXPECT_EQ(minfer("models vanish").exit_code, 2);
  EXPECT_THAT(output("models remove hf:org/repo:q8_0"), HasSubstr("5.92 MB freed"));
  EXPECT_THAT(output("models"), HasSubstr("no models in"));
  EXPECT_TRUE(std::filesystem::is_empty(line_.path("hf/hub/.locks")));
}

TEST(HubServeTest, AServerNamesTheModelWithoutThePrefix) {
  const test::CommandLine line;
  {
    const test::HubServer hub({{"demo-Q8_0.gguf", demo_bytes()},
                               {"a.txt", ""}});  // ends here: the process must not inherit its sockets
    ASSERT_EQ(line.shell(environment(hub, line) + "minfer tokenize hf:org/repo x").exit_code, 0);
  }
  ::setenv("HF_HOME", line.path("hf").c_str(), 1);
  ServerProcess server(minfer_binary(), {"hf:org/repo:Q8_0", "--offline"});
  ::unsetenv("HF_HOME");
  RawClient client(server.wait_until_serving());
  EXPECT_EQ(nlohmann::json::parse(client.request("GET", "/v1/models").body)["data"][0]["id"],
            "org/repo:Q8_0");
  const auto answer = client.request("POST", "/v1/completions",
                                     R"({"model": "org/repo:Q8_0", "prompt": "Once", "max_tokens": 2})");
  EXPECT_EQ(answer.status, 200) << answer.body;
}

}  // namespace
}  // namespace minfer
