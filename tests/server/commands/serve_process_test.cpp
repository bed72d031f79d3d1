// `minfer serve` as a process: signals under load, and a log or a profile that cannot be written.
#include <csignal>
#include <fstream>
#include <random>

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/support/paths.h"
#include "tests/support/sanitizers.h"
#include "tests/support/server/client_swarm.h"
#include "tests/support/server/raw_client.h"
#include "tests/support/server/server_process.h"

namespace minfer {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

const std::vector<std::string> kTinyServer{
    "--model", "synthetic:tiny:q8_0", "--max-model-len", "512", "--threads", "1", "--device", "cpu"};

std::vector<std::string> tiny_with(std::vector<std::string> more) {
  more.insert(more.end(), kTinyServer.begin(), kTinyServer.end());
  return more;
}

bool soaking() {
  return std::getenv("MINFER_SOAK") != nullptr;
}

std::string completion(int max_tokens, bool stream, int n = 1) {
  return fmt::format(
      R"({{"model":"synthetic:tiny:q8_0","prompt":[5,6,7],"max_tokens":{},"ignore_eos":true,"stream":{},"n":{}}})",
      max_tokens, stream, n);
}

std::string completion_request(int max_tokens, bool stream, int n = 1) {
  return RawClient::request_text("POST", "/v1/completions", completion(max_tokens, stream, n),
                                 "Connection: close\r\n");
}

/// A body that keeps a process busy for far longer than a test takes, if a few of it are computed one sequence at a
/// time. Not streamed, because a client that does not read its stream would be dropped.
std::string endless_completion() {
  return completion(500, false, 128);
}
const std::vector<std::string> kOneAtATime{"--max-num-seqs", "1", "--max-queue-size", "4096"};

/// The time that requests get at SIGTERM in tests that never see its end.
constexpr const char* kHour = "3600";

/// A metric without labels of its own; 0 if there is none.
double metric(const std::string& name, RawClient& client) {
  const std::string text = client.request("GET", "/metrics").body;
  const size_t found = text.find("\n" + name + "{");
  return found == std::string::npos ? 0.0 : std::stod(text.substr(text.find("} ", found) + 2));
}

testing::AssertionResult logs(ServerProcess& process, const std::string& words) {
  const auto is_there = [&] { return process.log().find(words) != std::string::npos; };
  if (test::wait_until(is_there)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << words << " is not in the log\n" << process.log();
}

void expect_exit(ServerProcess& process, int code) {
  const std::optional<int> status = process.wait();
  ASSERT_TRUE(status.has_value()) << "still runs\n" << process.log();
  EXPECT_TRUE(WIFEXITED(*status) && WEXITSTATUS(*status) == code) << "status " << *status << "\n"
                                                                  << process.log().substr(0, 2000);
}

/// Returns whether a client got a whole answer, or was told that it gets none.
testing::AssertionResult was_served(const SwarmClient& client, int& num_answered, int& num_refused) {
  if (client.refused) {
    ++num_refused;
    return testing::AssertionSuccess();
  }
  const ReceivedResponse response = parse_response(client.received);
  if (client.timed_out || client.was_reset || !response.complete) {
    return testing::AssertionFailure() << "lost: timed out " << client.timed_out << ", reset "
                                       << client.was_reset << ", got " << client.received.substr(0, 300);
  }
  if (response.status == 503) {
    ++num_refused;
    return testing::AssertionSuccess();
  }
  if (response.status != 200) return testing::AssertionFailure() << response.head << response.body;
  const bool streamed = response.head.find("event-stream") != std::string::npos;
  if (streamed) {
    const StreamedText text = parse_events(response.body);
    if (!text.done || !text.error.empty()) return testing::AssertionFailure() << "broken off: " << text.error;
  }
  ++num_answered;
  return testing::AssertionSuccess();
}

TEST(ServeSignalTest, SigtermUnderLoadLosesNoRequest) {
  const int num_runs = soaking() ? 100 : 5;
  std::mt19937 random(1);
  int num_answered = 0, num_refused = 0;
  for (int run = 0; run < num_runs; ++run) {
    ServerProcess process(minfer_binary(), tiny_with({"--shutdown-timeout", kHour, "--max-num-seqs", "16"}));
    const uint16_t port = process.wait_until_serving();
    std::vector<SwarmClient> clients;
    for (int i = 0; i < 120; ++i) {
      clients.push_back(
          {.request = completion_request(1 + static_cast<int>(random() % 40), random() % 2 == 0),
           .starts_after = std::chrono::milliseconds(random() % 400)});
    }
    // After some requests have been answered, and then at any moment.
    const auto delay = std::chrono::milliseconds(random() % 300);
    std::thread killer([&] {
      EXPECT_TRUE(logs(process, "path=/v1/completions"));
      std::this_thread::sleep_for(delay);
      process.signal(run % 4 == 3 ? SIGINT : SIGTERM);
    });
    run_swarm(port, clients);
    killer.join();
    const int num_answered_before = num_answered;
    for (const SwarmClient& client : clients)
      EXPECT_TRUE(was_served(client, num_answered, num_refused)) << "run " << run;
    EXPECT_GT(num_answered, num_answered_before);
    expect_exit(process, 0);
  }
  RecordProperty("answered", num_answered);
  RecordProperty("refused", num_refused);
}

TEST(ServeSignalTest, SigtermWhileIdleEndsWithoutWaiting) {
  for (const int signal : {SIGTERM, SIGINT}) {
    ServerProcess process(minfer_binary(), tiny_with({"--shutdown-timeout", kHour}));
    const uint16_t port = process.wait_until_serving();
    RawClient idle(port);
    EXPECT_EQ(idle.request("GET", "/health").status, 200);
    process.signal(signal);
    expect_exit(process, 0);
  }
}

TEST(ServeSignalTest, SigtermWhileStartingEndsTheProcess) {
  for (int delay_ms = 0; delay_ms < 200; delay_ms += soaking() ? 5 : 40) {
    ServerProcess process(minfer_binary(), kTinyServer);
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
    process.signal(SIGTERM);
    const std::optional<int> status = process.wait();
    ASSERT_TRUE(status.has_value()) << delay_ms;
    EXPECT_TRUE(*status == 0 || (WIFSIGNALED(*status) && WTERMSIG(*status) == SIGTERM))
        << *status << process.log();
  }
}

/// A process that does not finish its requests.
class ServeBusyTest : public testing::Test {
 protected:
  void start(const std::string& shutdown_timeout) {
    std::vector<std::string> arguments = tiny_with(kOneAtATime);
    arguments.insert(arguments.end(), {"--shutdown-timeout", shutdown_timeout});
    process_ = std::make_unique<ServerProcess>(minfer_binary(), arguments);
    port_ = process_->wait_until_serving();
    for (int i = 0; i < 8; ++i) {
      busy_.emplace_back(port_);
      busy_.back().send(RawClient::request_text("POST", "/v1/completions", endless_completion()));
    }
    RawClient probe(port_);
    EXPECT_TRUE(test::wait_until([&] {
      return metric("vllm:num_requests_running", probe) == 1 &&
             metric("vllm:num_requests_waiting", probe) > 7 * 128;
    }));
  }

  std::unique_ptr<ServerProcess> process_;
  uint16_t port_ = 0;
  std::vector<RawClient> busy_;
};

TEST_F(ServeBusyTest, NewRequestsGet503WhileTheLastOnesRun) {
  start(kHour);
  RawClient idle(port_);
  EXPECT_EQ(idle.request("GET", "/health").status, 200);
  process_->signal(SIGTERM);
  EXPECT_TRUE(test::wait_until([&] { return RawClient(port_).request("GET", "/health").status == 503; }));
  const auto refused = RawClient(port_).request("POST", "/v1/completions", completion(5, false));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.header("retry-after"), "1");
  EXPECT_EQ(idle.request("POST", "/v1/completions", completion(5, false)).status, 503);
  EXPECT_FALSE(process_->has_ended());
  for (const RawClient& client : busy_)
    EXPECT_FALSE(client.is_readable()) << "it still waits for its answer";
}

TEST_F(ServeBusyTest, WhatDoesNotFinishInTimeIsToldSo) {
  start("0.3");
  process_->signal(SIGTERM);
  for (RawClient& client : busy_) {
    const auto response = client.response();
    EXPECT_EQ(response.status, 503);
    EXPECT_THAT(response.body, HasSubstr("shutting down"));
  }
  expect_exit(*process_, 0);
}

TEST_F(ServeBusyTest, ASecondSigtermEndsAtOnce) {
  start(kHour);
  process_->signal(SIGTERM);
  EXPECT_TRUE(logs(*process_, "shutdown"));
  EXPECT_FALSE(process_->has_ended());
  process_->signal(SIGTERM);
  expect_exit(*process_, 128 + SIGTERM);
}

// Logs and profiles

constexpr int kRequests = 40;

void expect_answers(uint16_t port, int count) {
  for (int i = 0; i < count; ++i) {
    const auto response = RawClient(port).request("POST", "/v1/completions", completion(3, i % 2 == 0));
    ASSERT_EQ(response.status, 200) << response.body;
  }
}

TEST(ServeLogTest, ALogThatCannotBeWrittenStopsNothing) {
  int pipe_fds[2];
  ASSERT_EQ(::pipe2(pipe_fds, O_CLOEXEC), 0);
  ::close(pipe_fds[0]);
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  for (const int err_fd : {full, pipe_fds[1]}) {
    ServerProcess process(minfer_binary(), tiny_with({"--profile-out", "/dev/full"}), err_fd);
    expect_answers(process.wait_until_serving(), kRequests);
    process.signal(SIGTERM);
    expect_exit(process, 0);
    ::close(err_fd);
  }
}

TEST(ServeLogTest, ALogThatNobodyReadsStallsNobody) {
  int pipe_fds[2];
  ASSERT_EQ(::pipe2(pipe_fds, O_CLOEXEC), 0);
  ::fcntl(pipe_fds[1], F_SETPIPE_SZ, 4096);  // some forty lines
  ServerProcess process(minfer_binary(), kTinyServer, pipe_fds[1]);
  const uint16_t port = process.wait_until_serving();
  expect_answers(port, 4 * kRequests);
  process.signal(SIGTERM);
  expect_exit(process, 0);
  ::close(pipe_fds[0]);
  ::close(pipe_fds[1]);
}

TEST(ServeLogTest, AProfileThatCannotBeWrittenLosesNoRequest) {
  ServerProcess process(minfer_binary(), tiny_with({"--profile-out", "/dev/full"}));
  expect_answers(process.wait_until_serving(), kRequests);
  process.signal(SIGTERM);
  expect_exit(process, 0);
  EXPECT_THAT(process.log(), HasSubstr("No space left on device"));
  EXPECT_THAT(process.log(), HasSubstr(" dropped"));
}

/// A profile that is written to a pipe: closed after its first bytes, or left unread.
void profile_into_a_pipe(bool closes) {
  test::TemporaryDirectory directory;
  const std::string path = (directory.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ServerProcess process(minfer_binary(), tiny_with({"--profile-out", path}));
  const uint16_t port = process.wait_until_serving();
  expect_answers(port, kRequests);
  if (closes) ::close(reader);
  expect_answers(port, kRequests);
  process.signal(SIGTERM);
  expect_exit(process, 0);
  EXPECT_THAT(process.log(), HasSubstr(" dropped"));
  if (!closes) ::close(reader);
}

TEST(ServeLogTest, AProfileIntoAPipeThatIsClosedLosesNoRequest) {
  profile_into_a_pipe(true);
}

TEST(ServeLogTest, AProfileIntoAPipeThatNobodyReadsLosesNoRequest) {
  profile_into_a_pipe(false);  // the writer has five seconds at the end
}

TEST(ServeLogTest, TheKeyIsNeverInTheLog) {
  const std::string key = "sk-correct-horse", wrong = "sk-battery-staple";
  ServerProcess process(minfer_binary(), tiny_with({"--api-key", key, "--log-level", "debug"}));
  const uint16_t port = process.wait_until_serving();
  const auto status = [&](const std::string& header) {
    return RawClient(port).request("POST", "/v1/completions", completion(2, false), header).status;
  };
  EXPECT_EQ(status("Authorization: Bearer " + key + "\r\n"), 200);
  EXPECT_EQ(status("Authorization: Bearer " + wrong + "\r\n"), 401);
  EXPECT_EQ(status("Authorization: " + key + "\r\n"), 401);
  EXPECT_EQ(status(""), 401);
  process.signal(SIGTERM);
  expect_exit(process, 0);
  EXPECT_THAT(process.log(), HasSubstr("status=401"));
  EXPECT_THAT(process.log(), testing::Not(HasSubstr("horse")));
  EXPECT_THAT(process.log(), testing::Not(HasSubstr("staple")));
}

// The engine fails

TEST(ServeFailureTest, AFileThatShrinksEndsTheServerWithAnError) {
  test::TemporaryDirectory directory;
  const auto model = directory.path() / "model.gguf";
  std::filesystem::copy_file(source_path("tests/golden/mixtral.gguf"), model);
  ServerProcess process(minfer_binary(), {"--model", model.string(), "--threads", "1", "--device", "cpu"});
  RawClient client(process.wait_until_serving());
  EXPECT_EQ(client.request("GET", "/health").status, 200);
  std::filesystem::resize_file(model, std::filesystem::file_size(model) / 2);
  const auto response = client.request(
      "POST", "/v1/completions", R"({"model":"model","prompt":[5,6,7],"max_tokens":5,"ignore_eos":true})");
  EXPECT_EQ(response.status, 500) << response.body;
  expect_exit(process, 1);
  EXPECT_THAT(process.log(), HasSubstr("the engine has failed"));
}

// Many connections

TEST(ServeConnectionsTest, ThousandsOfIdleConnectionsHold) {
  const size_t count = soaking() ? 10'000 : 1'000;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_max < count + 100) GTEST_SKIP() << "the limit of open files is " << limit.rlim_max;
  ServerProcess process(minfer_binary(), kTinyServer);
  const uint16_t port = process.wait_until_serving();
  expect_answers(port, 10);
  RawClient probe(port);  // open before, during and after the others
  const auto wait_for_connections = [&](size_t num_open) {
    return test::wait_until(
        [&] { return metric("minfer:http_connections", probe) == static_cast<double>(num_open); });
  };
  ASSERT_TRUE(wait_for_connections(1));
  const size_t descriptors = process.num_descriptors();
  const int64_t before = process.resident_bytes();
  std::vector<RawClient> clients;
  for (size_t i = 0; i < count; ++i) {
    clients.emplace_back(port);
    ASSERT_EQ(clients.back().request("GET", "/health").status, 200) << i;
  }
  const int64_t bytes = (process.resident_bytes() - before) / static_cast<int64_t>(count);
  RecordProperty("connections", static_cast<int>(count));
  RecordProperty("bytes_per_idle_connection", static_cast<int>(bytes));
  EXPECT_EQ(process.num_descriptors(), descriptors + count);
  EXPECT_LT(bytes, test::kSanitized ? 65536 : 4096);
  expect_answers(port, 10);
  for (size_t i = 0; i < count; i += 97)
    EXPECT_EQ(clients[i].request("GET", "/health").status, 200);
  clients.clear();
  ASSERT_TRUE(wait_for_connections(1));
  EXPECT_EQ(process.num_descriptors(), descriptors);
  process.signal(SIGTERM);
  expect_exit(process, 0);
}

TEST(ServeConnectionsTest, IdleConnectionsMakeRoomWhereTheSystemGivesNoDescriptor) {
  ServerProcess process(minfer_binary(), kTinyServer);
  const uint16_t port = process.wait_until_serving();
  const rlim_t most = process.num_descriptors() + 8;
  const rlimit limit{.rlim_cur = most, .rlim_max = most};
  ASSERT_EQ(::prlimit(process.pid(), RLIMIT_NOFILE, &limit, nullptr), 0);
  std::vector<RawClient> idle;
  for (int i = 0; i < 40; ++i)
    idle.emplace_back(port);
  EXPECT_EQ(RawClient(port).request("GET", "/health").status, 200);
  expect_answers(port, 5);
}

TEST(ServeConnectionsTest, FewDescriptorsLockNobodyOutOfHealth) {
  test::TemporaryDirectory directory;
  const auto limited = directory.path() / "limited";
  std::ofstream(limited) << "#!/bin/sh\nulimit -n 64\nexec '" << minfer_binary() << "' \"$@\"\n";
  std::filesystem::permissions(limited, std::filesystem::perms::owner_all);
  ServerProcess process(limited.string(), tiny_with(kOneAtATime));
  const uint16_t port = process.wait_until_serving();
  std::vector<RawClient> busy;
  for (int i = 0; i < 100; ++i) {
    busy.emplace_back(port);
    busy.back().send(i < 4 ? RawClient::request_text("POST", "/v1/completions", endless_completion())
                           : completion_request(500, false));
  }
  EXPECT_TRUE(test::wait_until([&] { return busy.back().is_readable(); }));
  EXPECT_EQ(busy.back().response().status, 503) << "beyond what there is room for";
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(RawClient(port).request("GET", "/health").status, 200);
  EXPECT_FALSE(busy.front().is_readable()) << "it still waits for its answer";
}

TEST(ServeConnectionsTest, ATooLowLimitOfOpenFilesIsSaid) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  ServerProcess process(minfer_binary(), tiny_with({"--max-connections", std::to_string(limit.rlim_max)}));
  process.wait_until_serving();
  process.signal(SIGTERM);
  expect_exit(process, 0);
  EXPECT_THAT(process.log(), HasSubstr(fmt::format("limit={}", limit.rlim_max)));
}

}  // namespace
}  // namespace minfer
