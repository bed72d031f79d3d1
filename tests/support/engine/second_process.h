#pragma once

#include <memory>
#include <string>

#include <sys/types.h>

#include "engine/options/engine_options.h"

namespace minfer::test {

/// The job that both processes of a test run.
struct ProcessJob {
  std::string model;  ///< empty: the built-in one
  DeviceChoice device = DeviceChoice::cpu;
  AllReduceChoice all_reduce = AllReduceChoice::automatic;
  bool graphs = true;
  bool by_engine = true;  ///< true: by an Engine; false: by a LogitRun
  int32_t rank_timeout_s = 0;

  EngineOptions options(std::shared_ptr<ProcessGroup> processes) const;
};

/// The second of two ranks: another process of the same test program, without MPI, over a socket. This process is the first rank.
class SecondProcess {
 public:
  /// `test` calls follow_first() in the same program, e.g. "TwoProcesses.SecondFollows"; in other processes that call does nothing.
  SecondProcess(const std::string& test, const ProcessJob& job);
  /// Ends the process if it still runs.
  ~SecondProcess();
  SecondProcess(const SecondProcess&) = delete;
  SecondProcess& operator=(const SecondProcess&) = delete;

  /// Joins as the first of the two; waits for the other to arrive. Call it once.
  std::shared_ptr<ProcessGroup> join();
  void kill(int signal) const;
  /// Waits for the process to end. Returns its exit code, or minus the signal that ended it.
  int wait();

 private:
  pid_t process_ = -1;
  int socket_ = -1;
};

/// The work of such a second process: follows the first one to the end, with the same options. Throws the errors of that work. Does
/// nothing in any other process.
void follow_first();

// Expectations for two processes; `test` as above.

/// The logits of `job` equal those of one rank up to the order of sums, and the second process ends well.
void expect_logits_of_one(const std::string& test, ProcessJob job);
/// An engine's answers equal those of one rank, and the second process ends well.
void expect_answers_of_one(const std::string& test, const ProcessJob& job);
/// Sends a signal to the second process in the middle of an answer. Returns what the engine then throws.
std::string failure_after(const std::string& test, const ProcessJob& job, int signal);

}  // namespace minfer::test
