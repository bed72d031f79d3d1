#include "tests/support/engine/second_process.h"

#include <csignal>
#include <cstdlib>
#include <sstream>
#include <vector>

#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/ranks/ranks.h"
#include "kernels/base/error.h"
#include "kernels/comm/process_group.h"
#include "tests/support/engine/rank_run.h"
#include "tests/support/socket_transport.h"

extern char** environ;

namespace minfer::test {
namespace {

constexpr const char* kVariable = "MINFER_TEST_SECOND_PROCESS";
/// The descriptor of the second process's end of the socket.
constexpr int kSocket = 200;

std::shared_ptr<ProcessGroup> join_as(int32_t index, int socket) {
  return std::make_shared<ProcessGroup>(
      std::make_unique<SocketTransport>(Rank{index, 2}, socket),
      ProcessInfo{.host = "this-host", .process_id = ::getpid(), .cores = "all"});
}

std::string write(const ProcessJob& job) {
  return fmt::format("{} {} {} {} {} {}", static_cast<int>(job.device), static_cast<int>(job.all_reduce),
                     job.graphs ? 1 : 0, job.by_engine ? 1 : 0, job.rank_timeout_s, job.model);
}

ProcessJob read_job(const char* text) {
  std::istringstream words(text);
  ProcessJob job;
  int device = 0, all_reduce = 0;
  words >> device >> all_reduce >> job.graphs >> job.by_engine >> job.rank_timeout_s >> job.model;
  job.device = static_cast<DeviceChoice>(device);
  job.all_reduce = static_cast<AllReduceChoice>(all_reduce);
  return job;
}

}  // namespace

EngineOptions ProcessJob::options(std::shared_ptr<ProcessGroup> processes) const {
  EngineOptions result = rank_options(device, 1);
  if (device == DeviceChoice::cuda) result.dtype = DType::f32;
  result.cuda_graphs = graphs;
  if (processes) {
    result.all_reduce = all_reduce;
    result.rank_timeout_s = rank_timeout_s;
  }
  result.processes = std::move(processes);
  return result;
}

SecondProcess::SecondProcess(const std::string& test, const ProcessJob& job) {
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) fail("no pair of sockets");
  socket_ = sockets[0];
  const std::string filter = "--gtest_filter=" + test, variable = fmt::format("{}={}", kVariable, write(job));
  std::string program = "/proc/self/exe", brief = "--gtest_brief=1";
  std::vector<char*> arguments{program.data(), const_cast<char*>(filter.c_str()), brief.data(), nullptr};
  std::vector<char*> variables{const_cast<char*>(variable.c_str())};
  for (char** own = environ; *own != nullptr; ++own)
    if (!std::string_view(*own).starts_with("GTEST_")) variables.push_back(*own);
  variables.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, sockets[1], kSocket);
  const int error =
      ::posix_spawn(&process_, "/proc/self/exe", &actions, nullptr, arguments.data(), variables.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(sockets[1]);
  if (error != 0) fail("no second process: error {}", error);
}

SecondProcess::~SecondProcess() {
  if (process_ > 0) {
    kill(SIGKILL);
    wait();
  }
  if (socket_ >= 0) ::close(socket_);
}

std::shared_ptr<ProcessGroup> SecondProcess::join() {
  return join_as(0, std::exchange(socket_, -1));
}

void SecondProcess::kill(int signal) const {
  ::kill(process_, signal);
}

int SecondProcess::wait() {
  int status = 0;
  ::waitpid(std::exchange(process_, -1), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void follow_first() {
  const char* text = std::getenv(kVariable);
  if (text == nullptr) return;
  const ProcessJob job = read_job(text);
  const std::shared_ptr<ProcessGroup> processes = join_as(1, kSocket);
  try {
    std::unique_ptr<ModelSource> source = open_model(job.model);
    if (job.by_engine) {
      Engine(std::move(source), job.options(processes));
    } else {
      LogitRun(*source, job.options(processes));
    }
  } catch (const FollowedToEnd&) {
    return;
  } catch (const std::exception& error) {
    processes->fail(error.what());
    throw;
  }
  fail("the second process has nothing to do but to follow");
}

void expect_logits_of_one(const std::string& test, ProcessJob job) {
  SCOPED_TRACE(job.model);
  job.by_engine = false;
  const std::unique_ptr<ModelSource> source = open_model(job.model);
  const std::vector<LogitTrace> expected = rank_logits(*source, job.options(nullptr));
  SecondProcess second(test, job);
  const std::vector<LogitTrace> found = rank_logits(*source, job.options(second.join()));
  EXPECT_EQ(second.wait(), 0);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(found[i].tokens, expected[i].tokens) << i;
    EXPECT_LT(nmse(found[i].logits, expected[i].logits), 1e-10) << i;
  }
}

void expect_answers_of_one(const std::string& test, const ProcessJob& job) {
  const Answers expected = rank_answers(job.options(nullptr));
  SecondProcess second(test, job);
  const Answers found = rank_answers(job.options(second.join()));
  EXPECT_EQ(second.wait(), 0);
  for (const auto& [id, answer] : expected.all())
    EXPECT_EQ(found.at(id).tokens, answer.tokens) << id;
}

std::string failure_after(const std::string& test, const ProcessJob& job, int signal) {
  SecondProcess second(test, job);
  try {  // from the begin: on a slow machine a short patience may end before
    Engine engine(open_model(job.model), job.options(second.join()));
    engine.submit(greedy_request("a", engine.tokenizer().encode("Once upon a time"), 200));
    Answers answers;
    for (int step = 0; step < 5; ++step)
      answers.step(engine);
    second.kill(signal);
    answers.run(engine);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

}  // namespace minfer::test
