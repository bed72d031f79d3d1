// Processes that exchange messages through MPI. This file makes all calls of MPI; it is built as a module (libminfer_mpi.so) that
// the program loads if a launcher started it.

#include <climits>
#include <vector>

#define OMPI_SKIP_MPICXX  // the C++ bindings of MPI 2, a separate library
#include <mpi.h>

#include "kernels/comm/process_transport.h"

namespace minfer {
namespace {

std::string text_of(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return "MPI error " + std::to_string(code);
  return {text, static_cast<size_t>(length)};
}

class MpiTransport final : public ProcessTransport {
 public:
  explicit MpiTransport(Rank rank) : rank_(rank) {}

  Rank rank() const override { return rank_; }

  int32_t begin_send(int32_t to, int32_t tag, const void* bytes, size_t count) override {
    return begin(count, [&](int size, MPI_Request* request) {
      return MPI_Isend(bytes, size, MPI_BYTE, to, tag, MPI_COMM_WORLD, request);
    });
  }

  int32_t begin_receive(int32_t from, int32_t tag, void* bytes, size_t count) override {
    return begin(count, [&](int size, MPI_Request* request) {
      return MPI_Irecv(bytes, size, MPI_BYTE, from, tag, MPI_COMM_WORLD, request);
    });
  }

  Progress progress(int32_t transfer) override {
    int is_done = 0;
    const int code = MPI_Test(&requests_[static_cast<size_t>(transfer)], &is_done, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) error_ = text_of(code);
    if (code == MPI_SUCCESS && is_done == 0) return Progress::waiting;
    requests_[static_cast<size_t>(transfer)] = MPI_REQUEST_NULL;
    free_.push_back(transfer);
    return code == MPI_SUCCESS ? Progress::done : Progress::failed;
  }

  int64_t size_of_next(int32_t from, int32_t tag) override {
    int is_there = 0, size = 0;
    MPI_Status status;
    if (MPI_Iprobe(from, tag, MPI_COMM_WORLD, &is_there, &status) != MPI_SUCCESS || is_there == 0) return -1;
    return MPI_Get_count(&status, MPI_BYTE, &size) == MPI_SUCCESS ? size : -1;
  }

  void finish() override { MPI_Finalize(); }
  std::string error() const override { return error_; }

 private:
  template <class Call>
  int32_t begin(size_t count, Call call) {
    if (count > INT_MAX) {
      error_ = "a message of " + std::to_string(count) + " bytes, expected fewer than 2^31";
      return -1;
    }
    if (free_.empty()) {
      free_.push_back(static_cast<int32_t>(requests_.size()));
      requests_.push_back(MPI_REQUEST_NULL);
    }
    const int32_t transfer = free_.back();
    const int code = call(static_cast<int>(count), &requests_[static_cast<size_t>(transfer)]);
    if (code != MPI_SUCCESS) {
      error_ = text_of(code);
      return -1;
    }
    free_.pop_back();
    return transfer;
  }

  Rank rank_;
  std::vector<MPI_Request> requests_;
  std::vector<int32_t> free_;
  std::string error_;
};

}  // namespace
}  // namespace minfer

extern "C" {

__attribute__((visibility("default"))) int32_t minfer_transport_version() {
  return minfer::kTransportModuleVersion;
}

__attribute__((visibility("default"))) minfer::ProcessTransport* minfer_make_transport(std::string& error) {
  // One thread at a time, but not always the same one: a server's engine has a thread of its own.
  int provided = 0;
  int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  if (code != MPI_SUCCESS) {
    error = minfer::text_of(code);
    return nullptr;
  }
  if (provided < MPI_THREAD_SERIALIZED) {
    error = "this MPI takes calls from the main thread alone (MPI_THREAD_SERIALIZED is missing)";
    return nullptr;
  }
  minfer::Rank rank;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank.index);
  MPI_Comm_size(MPI_COMM_WORLD, &rank.count);
  return new minfer::MpiTransport(rank);
}
}
