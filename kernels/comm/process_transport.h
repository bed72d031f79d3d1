#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/comm/rank.h"

namespace minfer {

/// Messages between the processes that a launcher started, as MPI carries them: those of one sender with one tag arrive whole and in
/// order. No call waits, except finish(), and none throws. One thread at a time. A module implements it and is loaded only if there
/// is a launcher. So the program itself needs no MPI; this class and the two functions below are the whole interface.
class ProcessTransport {
 public:
  enum class Progress : uint8_t { waiting, done, failed };

  virtual ~ProcessTransport() = default;
  virtual Rank rank() const = 0;
  /// Begins to send or to receive a message of exactly `count` bytes, which stay valid until progress() reports done or failed.
  /// Returns a number for progress(); negative: see error().
  virtual int32_t begin_send(int32_t to, int32_t tag, const void* bytes, size_t count) = 0;
  virtual int32_t begin_receive(int32_t from, int32_t tag, void* bytes, size_t count) = 0;
  /// The state of a transfer. Once it is done or failed, its number is free for another transfer.
  virtual Progress progress(int32_t transfer) = 0;
  /// The number of bytes of the next message from that rank that no receive has begun for; negative: there is none.
  virtual int64_t size_of_next(int32_t from, int32_t tag) = 0;
  /// Waits for all processes, which call it too after they have received everything sent to them. There is no transport afterwards.
  virtual void finish() = 0;
  /// The error text of the last failed call.
  virtual std::string error() const = 0;
};

/// Names of the module's functions. The module is of the program's build if it answers with the program's own kTransportModuleVersion.
inline constexpr int32_t kTransportModuleVersion = 1;
inline constexpr const char* kTransportVersionFunction = "minfer_transport_version";
inline constexpr const char* kMakeTransportFunction = "minfer_make_transport";
using TransportVersionFunction = int32_t (*)();
/// Joins the processes of the launcher, once in a process. Null: it failed, and `error` says why.
using MakeTransportFunction = ProcessTransport* (*)(std::string& error);

}  // namespace minfer
