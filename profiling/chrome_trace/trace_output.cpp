#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <zlib.h>

#include "kernels/base/error.h"
#include "profiling/chrome_trace/chrome_trace.h"

namespace minfer {
namespace {

/// The error of the last failed call on `file`.
std::string reason_of(gzFile file) {
  int code = Z_OK;
  const char* text = gzerror(file, &code);
  return code == Z_ERRNO ? std::strerror(errno) : text;
}

}  // namespace

TraceOutput::TraceOutput(const std::filesystem::path& path) : path_(path.string()) {
  errno = 0;
  // 'T': zlib writes the bytes as they are.
  file_ = gzopen(path_.c_str(), path.extension() == ".gz" ? "wb6" : "wbT");
  if (file_ == nullptr)
    fail<FileError>("{}: cannot open for writing: {}", path_,
                    errno != 0 ? std::strerror(errno) : "out of memory");
  gzbuffer(file_, 1u << 17);
}

TraceOutput::~TraceOutput() {
  if (file_ != nullptr) gzclose(file_);
}

void TraceOutput::write(std::string_view bytes) {
  constexpr size_t kMost = 1u << 30;  // of a call: its length is an unsigned, its result an int
  while (!bytes.empty()) {
    const auto length = static_cast<unsigned>(std::min(bytes.size(), kMost));
    if (gzwrite(file_, bytes.data(), length) != static_cast<int>(length))
      fail<FileError>("{}: cannot write: {}", path_, reason_of(file_));
    bytes.remove_prefix(length);
  }
}

void TraceOutput::close() {
  const int code = gzclose(std::exchange(file_, nullptr));
  if (code != Z_OK)
    fail<FileError>("{}: cannot write: {}", path_, code == Z_ERRNO ? std::strerror(errno) : zError(code));
}

}  // namespace minfer
