// KV events on the wire: vLLM's format, sequence numbers, a full queue, endpoints that are unavailable.
#include "server/kv_events/kv_event_publisher.h"

#include <atomic>
#include <csignal>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>
#include <zmq.h>

#include "kernels/base/error.h"
#include "tests/support/refusal.h"
#include "tests/support/wait.h"

#ifdef __clang__
/// Debian's libzmq is not built for the thread sanitizer, which sees none of its synchronisation.
extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libzmq.so\n";
}
#endif

namespace minfer {
namespace {

using testing::HasSubstr;

KvEventBatch sample_events() {
  KvEventBatch batch;
  batch.block_size = 2;
  batch.add_cleared();
  batch.add_stored(std::nullopt, 0xfedcba9876543210u, std::vector<TokenId>{1, 70000});
  batch.add_stored(0xfedcba9876543210u, 300, std::vector<TokenId>{200, 3});
  batch.add_stored(17, 5, std::vector<TokenId>{4, 5});
  batch.add_removed(300);
  batch.add_removed(5);
  return batch;
}

TEST(KvEventEncoder, NamesFieldsAsVllmDoes) {
  const nlohmann::json batch =
      nlohmann::json::from_msgpack(encode_kv_events(sample_events(), 1.5, KvEventFormat::map));
  EXPECT_EQ(batch, nlohmann::json::parse(R"([1.5, [
    {"type": "AllBlocksCleared"},
    {"type": "BlockStored", "block_hashes": [18364758544493064720, 300], "parent_block_hash": null,
     "token_ids": [1, 70000, 200, 3], "block_size": 2, "lora_id": null, "medium": "GPU", "lora_name": null},
    {"type": "BlockStored", "block_hashes": [5], "parent_block_hash": 17, "token_ids": [4, 5], "block_size": 2,
     "lora_id": null, "medium": "GPU", "lora_name": null},
    {"type": "BlockRemoved", "block_hashes": [300, 5], "medium": "GPU"}], 0])"));
}

TEST(KvEventEncoder, PutsFieldsInVllmsOrder) {
  const nlohmann::json batch =
      nlohmann::json::from_msgpack(encode_kv_events(sample_events(), 1.5, KvEventFormat::array));
  EXPECT_EQ(batch, nlohmann::json::parse(R"([1.5, [
    ["AllBlocksCleared"],
    ["BlockStored", [18364758544493064720, 300], null, [1, 70000, 200, 3], 2, null, "GPU", null],
    ["BlockStored", [5], 17, [4, 5], 2, null, "GPU", null],
    ["BlockRemoved", [300, 5], "GPU"]], 0])"));
}

constexpr const char* kAnyPort = "tcp://127.0.0.1:*";

std::string refusal(KvEventOptions options) {
  return test::refusal_of([&] { const KvEventPublisher publisher(std::move(options)); });
}

TEST(KvEventPublisher, EndpointsThatCannotBeHadAreNamed) {
  EXPECT_THAT(refusal({.endpoint = "tcp://foo"}),
              HasSubstr("--kv-events-endpoint: \"tcp://foo\" has no port"));
  EXPECT_THAT(refusal({.endpoint = "tcp://*:70000"}), HasSubstr("has no port from 1 to 65535"));
  EXPECT_THAT(refusal({.endpoint = "bogus://x"}),
              HasSubstr("--kv-events-endpoint: cannot connect to bogus://x"));
  const KvEventPublisher first({.endpoint = kAnyPort, .replay_endpoint = kAnyPort});
  EXPECT_TRUE(first.is_bound());
  EXPECT_THAT(refusal({.endpoint = kAnyPort, .replay_endpoint = first.replay_endpoint()}),
              HasSubstr("--kv-events-replay-endpoint: cannot listen at " + first.replay_endpoint() +
                        ": Address already in use"));
  EXPECT_EQ(refusal({.endpoint = first.endpoint()}), "") << "without a * it connects";
}

/// A client's socket that gives up instead of hanging the test.
class Client {
 public:
  Client(int type, const std::string& endpoint)
      : context_(zmq_ctx_new()), socket_(zmq_socket(context_, type)) {
    const int patience_ms = static_cast<int>(std::chrono::milliseconds(test::kPatience).count());
    const int linger = 0;
    zmq_setsockopt(socket_, ZMQ_RCVTIMEO, &patience_ms, sizeof patience_ms);
    zmq_setsockopt(socket_, ZMQ_LINGER, &linger, sizeof linger);
    if (type == ZMQ_SUB) zmq_setsockopt(socket_, ZMQ_SUBSCRIBE, "", 0);
    EXPECT_EQ(zmq_connect(socket_, endpoint.c_str()), 0);
  }
  ~Client() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(std::vector<std::string> frames) {
    for (size_t i = 0; i < frames.size(); ++i)
      zmq_send(socket_, frames[i].data(), frames[i].size(), i + 1 < frames.size() ? ZMQ_SNDMORE : 0);
  }
  /// Empty: nothing came.
  std::vector<std::string> receive() {
    std::vector<std::string> frames;
    int more = 1;
    while (more != 0) {
      std::string& frame = frames.emplace_back(1 << 16, '\0');
      const int size = zmq_recv(socket_, frame.data(), frame.size(), 0);
      if (size < 0) return {};
      frame.resize(static_cast<size_t>(size));
      size_t option_size = sizeof more;
      zmq_getsockopt(socket_, ZMQ_RCVMORE, &more, &option_size);
    }
    return frames;
  }

 private:
  void* context_;
  void* socket_;
};

std::string number(uint8_t last) {
  return std::string(7, '\0') + static_cast<char>(last);
}

void publish_stored(KvEventPublisher& publisher, uint64_t hash) {
  KvEventBatch batch;
  batch.block_size = 1;
  if (publisher.wants_all()) batch.add_cleared();
  batch.add_stored(std::nullopt, hash, std::vector<TokenId>{1});
  publisher.take(batch);
}

TEST(KvEventPublisher, ReplaysWhatWasMissed) {
  KvEventPublisher publisher({.endpoint = kAnyPort, .replay_endpoint = kAnyPort, .max_replay_batches = 3});
  for (uint64_t hash = 0; hash < 5; ++hash)
    publish_stored(publisher, hash);
  ASSERT_TRUE(test::wait_until([&] { return publisher.counts().published == 5; }));
  Client client(ZMQ_DEALER, publisher.replay_endpoint());
  client.send({"nonsense"});
  client.send({"", "too short"});
  client.send({"", number(3)});
  client.send({"", number(0)});
  for (const uint8_t expected : std::vector<uint8_t>{3, 4, 255, 2, 3, 4, 255}) {
    const std::vector<std::string> frames = client.receive();
    ASSERT_EQ(frames.size(), 3u);
    if (expected == 255) {
      EXPECT_EQ(frames[1], std::string(8, '\xff'));
      EXPECT_EQ(frames[2], "");
      continue;
    }
    EXPECT_EQ(frames[1], number(expected));
    EXPECT_EQ(nlohmann::json::from_msgpack(frames[2])[1][0]["block_hashes"], nlohmann::json({expected}));
  }
}

TEST(KvEventPublisher, ASignalEndsNoWait) {
  static std::atomic<int> num_handled;
  num_handled = 0;
  struct sigaction handled {
  }, before{};
  handled.sa_handler = [](int) { ++num_handled; };
  ASSERT_EQ(sigaction(SIGUSR2, &handled, &before), 0);
  KvEventPublisher publisher({.endpoint = kAnyPort, .replay_endpoint = kAnyPort});
  // Only the publisher's thread takes the signals: this thread does not, and ZeroMQ's own threads block all.
  sigset_t usr2, mask;
  sigemptyset(&usr2);
  sigaddset(&usr2, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &usr2, &mask);
  for (int sent = 1; sent <= 20; ++sent) {
    kill(getpid(), SIGUSR2);
    ASSERT_TRUE(test::wait_until([&] { return num_handled == sent; }));
  }
  publish_stored(publisher, 1);
  EXPECT_TRUE(test::wait_until([&] { return publisher.counts().published == 1; }));
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  sigaction(SIGUSR2, &before, nullptr);
}

TEST(KvEventPublisher, AFullQueueLeavesAGapAndThenTheWhole) {
  KvEventPublisher publisher({.endpoint = kAnyPort, .topic = "kv@pod@model", .max_queue_bytes = 1});
  Client client(ZMQ_SUB, publisher.endpoint());
  const std::jthread publishing([&](const std::stop_token& stop) {
    while (!stop.stop_requested())
      publish_stored(publisher, 2);
  });
  bool has_gap = false;
  uint64_t last = 0;
  for (int n = 0; n < 1000 && !has_gap; ++n) {
    const std::vector<std::string> frames = client.receive();
    ASSERT_EQ(frames.size(), 3u);
    EXPECT_EQ(frames[0], "kv@pod@model");
    uint64_t batch_number = 0;
    for (const char byte : frames[1])
      batch_number = batch_number << 8 | static_cast<uint8_t>(byte);
    has_gap = n > 0 && batch_number != last + 1;
    if (has_gap) {
      EXPECT_EQ(nlohmann::json::from_msgpack(frames[2])[1][0],
                nlohmann::json({{"type", "AllBlocksCleared"}}));
    }
    last = batch_number;
  }
  EXPECT_TRUE(has_gap);
}

}  // namespace
}  // namespace minfer
