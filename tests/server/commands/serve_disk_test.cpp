// `minfer serve --kv-cache-dir` as processes: what one has computed the next one reads.
#include <csignal>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include "tests/support/paths.h"
#include "tests/support/server/raw_client.h"
#include "tests/support/server/server_process.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

using testing::HasSubstr;

constexpr int kCached = 96;  // six blocks of the prompt's 100 tokens

/// A prompt of 100 tokens that begins with `first`.
std::string disk_completion(int first, const std::string& salt = "") {
  std::vector<int> prompt(100, 7);
  prompt[0] = first;
  for (int i = 1; i < 100; ++i)
    prompt[static_cast<size_t>(i)] = (first * 31 + i * i) % 500;
  return fmt::format(
      R"({{"model":"synthetic:tiny:q8_0","prompt":[{}],"max_tokens":8,"temperature":0,"ignore_eos":true{}}})",
      fmt::join(prompt, ","), salt.empty() ? "" : fmt::format(R"(,"cache_salt":"{}")", salt));
}

class ServeDiskTest : public testing::Test {
 protected:
  ServerProcess start() const {
    return ServerProcess(minfer_binary(), {"--model", "synthetic:tiny:q8_0", "--max-model-len", "512",
                                           "--threads", "1", "--device", "cpu", "--num-blocks", "40",
                                           "--kv-cache-dir", folder_, "--kv-cache-disk", "10MiB"});
  }
  static nlohmann::json ask(uint16_t port, int first, const std::string& salt = "") {
    const auto response = RawClient(port).request("POST", "/v1/completions", disk_completion(first, salt));
    EXPECT_EQ(response.status, 200) << response.body;
    return nlohmann::json::parse(response.body);
  }
  static int cached(const nlohmann::json& answer) {
    return answer["usage"]["prompt_tokens_details"].value("cached_tokens", 0);
  }
  static void expect_exit(ServerProcess& process, int code) {
    const std::optional<int> status = process.wait();
    ASSERT_TRUE(status.has_value()) << process.log();
    EXPECT_TRUE(WIFEXITED(*status) && WEXITSTATUS(*status) == code) << *status << process.log();
  }

  test::TemporaryDirectory directory_;
  const std::string folder_ = directory_.path() / "kv";
};

TEST_F(ServeDiskTest, ARestartedServerReadsWhatTheOneBeforeItComputed) {
  std::string text;
  {
    ServerProcess first = start();
    const uint16_t port = first.wait_until_serving();
    text = ask(port, 1)["choices"][0]["text"];
    ask(port, 2, "tenant");
    first.signal(SIGTERM);
    expect_exit(first, 0);
    EXPECT_THAT(first.log(), HasSubstr("KV blocks on disk"));
  }
  ServerProcess second = start();
  const uint16_t port = second.wait_until_serving();
  const nlohmann::json answer = ask(port, 1);
  EXPECT_EQ(answer["choices"][0]["text"], text);
  EXPECT_EQ(cached(answer), kCached);
  EXPECT_EQ(cached(ask(port, 2)), 0);
  EXPECT_EQ(cached(ask(port, 2, "tenant")), kCached);
  const std::string metrics = RawClient(port).request("GET", "/metrics").body;
  EXPECT_THAT(metrics, testing::ContainsRegex("minfer:kv_disk_hit_tokens_total.*} 192"));
  EXPECT_THAT(metrics, testing::ContainsRegex("minfer:kv_disk_blocks_total.*outcome=\"read\"} 12"));
}

TEST_F(ServeDiskTest, AKilledServerLeavesWhatItHadWritten) {
  std::vector<std::string> texts;
  {
    ServerProcess killed = start();
    const uint16_t port = killed.wait_until_serving();
    for (int first = 1; first < 20; ++first)  // far more than memory holds
      texts.push_back(ask(port, first)["choices"][0]["text"]);
    const auto num_files = [this] {
      const std::filesystem::recursive_directory_iterator entries(folder_);
      return std::distance(begin(entries), end(entries));
    };
    EXPECT_TRUE(test::wait_until([&] { return num_files() > 20; }));
    killed.signal(SIGKILL);
    killed.wait();
  }
  ServerProcess second = start();
  const uint16_t port = second.wait_until_serving();
  int num_cached = 0;
  for (int first = 1; first < 20; ++first) {
    const nlohmann::json answer = ask(port, first);
    EXPECT_EQ(answer["choices"][0]["text"], texts[static_cast<size_t>(first) - 1]);
    num_cached += cached(answer);
  }
  EXPECT_GT(num_cached, 0);
}

TEST_F(ServeDiskTest, ASecondServerOfTheFolderIsRefused) {
  ServerProcess first = start();
  first.wait_until_serving();
  ServerProcess second = start();
  expect_exit(second, 1);
  EXPECT_THAT(second.log(), HasSubstr(folder_ + ": another process uses it"));
}

}  // namespace
}  // namespace minfer
