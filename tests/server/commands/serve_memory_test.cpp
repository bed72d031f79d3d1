// A server's memory grows little with the size of an answer. The test measures the process's peak.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "tests/support/sanitizers.h"
#include "tests/support/server/raw_client.h"
#include "tests/support/server/server_process.h"

namespace minfer {
namespace {

/// Asks for 64 answers. Each token comes with the log probabilities of the `logprobs` most likely ones.
std::string answers_with(int logprobs) {
  return fmt::format(
      R"({{"model":"synthetic:tiny:q8_0","prompt":[5,6,7],"max_tokens":300,"ignore_eos":true,"n":64,"logprobs":{}}})",
      logprobs);
}

TEST(ServeMemoryTest, AnAnswerTakesAtMostTwiceItsSize) {
  if (test::kSanitized) GTEST_SKIP() << "a sanitizer's own memory is more";
  ServerProcess process(minfer_binary(), {"--model", "synthetic:tiny:q8_0", "--max-model-len", "512",
                                          "--threads", "1", "--device", "cpu"});
  const uint16_t port = process.wait_until_serving();
  const auto answer = [&](int logprobs) {
    return RawClient(port).request("POST", "/v1/completions", answers_with(logprobs));
  };
  // Each request uses other blocks of the KV cache, until all are used.
  int64_t before = 0;
  for (int i = 0; i < 20 && process.peak_bytes() > before + (1 << 20); ++i) {
    before = process.peak_bytes();
    ASSERT_EQ(answer(0).status, 200);
  }
  before = process.peak_bytes();
  ASSERT_GT(before, 0);
  const RawClient::Response large = answer(20);
  ASSERT_EQ(large.status, 200) << large.body;
  EXPECT_GT(large.body.size(), size_t{5} << 20);
  EXPECT_LE(process.peak_bytes() - before, 2 * static_cast<int64_t>(large.body.size()));
}

}  // namespace
}  // namespace minfer
