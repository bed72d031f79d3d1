#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/comm/rank.h"

namespace minfer {

/// Messages between the processes that a launcher started, as MPI carries them: those of one sender with one tag arrive whole and in
/// order. Nothing waits and nothing throws. One thread at a time. Made by a module that is loaded only where there is a launcher, so
/// that the program itself needs no MPI: nothing but this class and the two functions below stands between them.
class ProcessTransport {
 public:
  enum class Progress : uint8_t { waiting, done, failed };

  virtual ~ProcessTransport() = default;
  virtual Rank rank() const = 0;
  /// Begins to send or to receive a message of exactly so many bytes, which stay where they are until progress() says that it is done
  /// or has failed. A number for progress(); negative: see error().
  virtual int32_t begin_send(int32_t to, int32_t tag, const void* bytes, size_t count) = 0;
  virtual int32_t begin_receive(int32_t from, int32_t tag, void* bytes, size_t count) = 0;
  /// What has become of it; once done or failed the number is free for another one.
  virtual Progress progress(int32_t transfer) = 0;
  /// Bytes of the next message from there that nobody receives yet; negative: there is none.
  virtual int64_t size_of_next(int32_t from, int32_t tag) = 0;
  /// Waits for all processes, which call it too, having received all they were sent; then there is no transport any more.
  virtual void finish() = 0;
  /// What the last failed call said.
  virtual std::string error() const = 0;
};

/// Functions of the module. It is of the same build as the program if it answers with the program's own kTransportModuleVersion.
inline constexpr int32_t kTransportModuleVersion = 1;
inline constexpr const char* kTransportVersionFunction = "minfer_transport_version";
inline constexpr const char* kMakeTransportFunction = "minfer_make_transport";
using TransportVersionFunction = int32_t (*)();
/// Joins the processes of the launcher, once a process. Null: `error` says why.
using MakeTransportFunction = ProcessTransport* (*)(std::string& error);

}  // namespace minfer
