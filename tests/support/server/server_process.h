#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "tests/support/temporary_directory.h"
#include "tests/support/wait.h"

namespace minfer {

/// `minfer serve` as a separate process, on a free port. Killed at the end of the test if it still runs.
class ServerProcess {
 public:
  /// Starts `binary` serve with these arguments. Its standard error goes to a file, or to `err_fd`.
  ServerProcess(const std::string& binary, std::vector<std::string> arguments, int err_fd = -1);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  pid_t pid() const { return pid_; }
  /// Waits until it answers. If it does not, throws std::runtime_error with its output.
  uint16_t wait_until_serving();
  void signal(int number) const;
  /// The status from waitpid, or nothing if the process still runs after `patience`.
  std::optional<int> wait(std::chrono::milliseconds patience = test::kPatience);
  bool has_ended() { return wait(std::chrono::milliseconds(0)).has_value(); }
  /// Its output on standard error so far, unless that goes elsewhere.
  std::string log() const;
  int64_t resident_bytes() const;
  /// The most bytes that were ever resident.
  int64_t peak_bytes() const;
  size_t num_descriptors() const;

 private:
  uint16_t listening_port() const;

  test::TemporaryDirectory directory_;
  std::filesystem::path log_path_;
  pid_t pid_ = -1;
  std::optional<int> status_;
};

}  // namespace minfer
