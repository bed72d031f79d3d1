#pragma once

#include <memory>
#include <string>

#include <sys/types.h>

#include "engine/options/engine_options.h"

namespace minfer::test {

/// What both processes of a test run.
struct ProcessJob {
  std::string model;  ///< empty: the built-in one
  DeviceChoice device = DeviceChoice::cpu;
  AllReduceChoice all_reduce = AllReduceChoice::automatic;
  bool graphs = true;
  bool by_engine = true;  ///< by an Engine, or a LogitRun
  int32_t rank_timeout_s = 0;

  EngineOptions options(std::shared_ptr<ProcessGroup> processes) const;
};

/// The second of two ranks, a process of its own that runs the same test program: without MPI, over a socket. This process is the first.
class SecondProcess {
 public:
  /// `test`: the one in the same program that calls follow_first(), e.g. "TwoProcesses.SecondFollows"; else it does nothing.
  SecondProcess(const std::string& test, const ProcessJob& job);
  /// Ends it, if it has not ended by itself.
  ~SecondProcess();
  SecondProcess(const SecondProcess&) = delete;
  SecondProcess& operator=(const SecondProcess&) = delete;

  /// This one among the two; waits for the other to be there. Once.
  std::shared_ptr<ProcessGroup> join();
  void kill(int signal) const;
  /// Waits for its end: its exit code, or minus the signal that ended it.
  int wait();

 private:
  pid_t process_ = -1;
  int socket_ = -1;
};

/// What such a second process does: with options as the first one's, follows it to the end. Throws what that throws. In any other process
/// nothing.
void follow_first();

// Expectations of two processes; `test` as above.

/// The logits of `job` are those of one rank up to the order of sums, and the second process ends well.
void expect_logits_of_one(const std::string& test, ProcessJob job);
/// An engine's answers are those of one rank, and the second process ends well.
void expect_answers_of_one(const std::string& test, const ProcessJob& job);
/// The second process gets a signal in the middle of an answer: what the engine throws then.
std::string failure_after(const std::string& test, const ProcessJob& job, int signal);

}  // namespace minfer::test
