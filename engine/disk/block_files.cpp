#include "engine/disk/block_files.h"

#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <xxhash.h>

#include "kernels/base/error.h"

namespace minfer {
namespace {

struct Header {
  std::array<char, 8> magic{'m', 'i', 'n', 'f', 'e', 'r', 'K', 'V'};
  uint64_t format = 1;
  uint64_t bytes = 0;
  BlockKey key = {};
  uint64_t checksum = 0;
  bool operator==(const Header&) const = default;
};
static_assert(sizeof(Header) == BlockFiles::kHeaderBytes);

Header header_of(const BlockKey& key, std::span<const std::byte> block) {
  return {.bytes = block.size(), .key = key, .checksum = XXH3_64bits(block.data(), block.size())};
}

std::string hex(std::span<const unsigned char> key) {
  return fmt::format("{:02x}", fmt::join(key, ""));
}

/// The key that a file's name begins with.
std::optional<BlockKey> key_of(std::string_view name) {
  BlockKey key;
  if (name.size() < 2 * key.size()) return std::nullopt;
  for (size_t i = 0; i < key.size(); ++i) {
    const char* const end = name.data() + 2 * i + 2;
    if (std::from_chars(end - 2, end, key[i], 16).ptr != end) return std::nullopt;
  }
  return key;
}

/// Moves all bytes of a file by ::readv or ::writev, and sets the time of its use. Closes it.
template <class Move>
bool move_all(int file, const Move& move, Header& header, std::span<std::byte> block, int64_t time_ns) {
  if (file < 0) return false;
  const std::array<iovec, 2> parts{{{&header, sizeof(header)}, {block.data(), block.size()}}};
  const bool is_whole = move(file, parts.data(), 2) == static_cast<ssize_t>(sizeof(header) + block.size());
  const timespec time{.tv_sec = time_ns / 1'000'000'000, .tv_nsec = time_ns % 1'000'000'000};
  const std::array<timespec, 2> times{time, time};
  ::futimens(file, times.data());
  return ::close(file) == 0 && is_whole;
}

}  // namespace

BlockFiles::BlockFiles(std::filesystem::path folder, int64_t max_bytes, const BlockKey& model)
    : folder_(std::move(folder)), model_(hex(std::span(model).first<6>())), max_bytes_(max_bytes) {
  ::mkdir(folder_.c_str(), 0700);
  lock_ = ::open((folder_ / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  const bool has_folder = lock_ >= 0 && (::mkdir((folder_ / model_).c_str(), 0700) == 0 || errno == EEXIST);
  const std::string failure = has_folder ? "" : std::generic_category().message(errno);
  if (!has_folder || ::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    if (lock_ >= 0) ::close(lock_);
    fail("kv-cache-dir: {}: {}", folder_.string(), has_folder ? "another process uses it" : failure);
  }
  find_files();
}

BlockFiles::~BlockFiles() {
  ::close(lock_);
}

/// Files of other models count too. A file that was being written is removed. Anything else in the folder is left alone.
void BlockFiles::find_files() {
  std::error_code error;
  for (const auto& model : std::filesystem::directory_iterator(folder_)) {
    const std::string model_name = model.path().filename();
    if (model_name.size() != model_.size() || model.is_symlink() || !model.is_directory()) continue;
    for (const auto& file : std::filesystem::directory_iterator(model, error)) {
      const std::string name = file.path().filename();
      const std::optional<BlockKey> key = key_of(name);
      struct stat status {};
      if (!key || ::lstat(file.path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
      if (name == hex(*key)) {
        add(*key, {.model = model_name,
                   .bytes = status.st_size,
                   .time_ns = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec});
      } else {
        std::filesystem::remove(file.path(), error);
      }
    }
  }
  make_room(0, INT64_MAX);
}

std::string BlockFiles::path_of(const BlockKey& key, const std::string& model) const {
  return folder_ / model / hex(key);
}

void BlockFiles::add(const BlockKey& key, File file) {
  const std::lock_guard lock(mutex_);
  by_time_.emplace(file.time_ns, key);
  bytes_ += file.bytes;
  files_.emplace(key, std::move(file));
}

void BlockFiles::remove(const BlockKey& key) {
  std::string path;
  {
    const std::lock_guard lock(mutex_);
    const auto found = files_.find(key);
    if (found == files_.end()) return;
    path = path_of(key, found->second.model);
    by_time_.erase({found->second.time_ns, key});
    bytes_ -= found->second.bytes;
    files_.erase(found);
  }
  ::unlink(path.c_str());  // not under the lock: the engine's thread would wait for the disk
}

bool BlockFiles::touch(const BlockKey& key, int64_t time_ns) {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(key);
  if (found == files_.end()) return false;
  by_time_.erase({std::exchange(found->second.time_ns, time_ns), key});
  by_time_.emplace(time_ns, key);
  return true;
}

bool BlockFiles::read(const BlockKey& key, std::span<std::byte> block, int64_t time_ns) {
  Header header;
  const int file = ::open(path_of(key, model_).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (move_all(file, ::readv, header, block, time_ns) && header == header_of(key, block)) return true;
  remove(key);
  return false;
}

/// Removes files that were used before `time_ns` until there is room. False: there are too few.
bool BlockFiles::make_room(int64_t bytes, int64_t time_ns) {
  while (true) {
    BlockKey oldest;
    {
      const std::lock_guard lock(mutex_);
      if (bytes_ + bytes <= max_bytes_) return true;
      if (by_time_.empty() || by_time_.begin()->first >= time_ns) return false;
      oldest = by_time_.begin()->second;
    }
    remove(oldest);
  }
}

bool BlockFiles::write(const BlockKey& key, std::span<std::byte> block, int64_t time_ns) {
  const int64_t bytes = kHeaderBytes + std::ssize(block);
  if (touch(key, time_ns)) return true;
  if (!make_room(bytes, time_ns)) return false;
  const std::string path = path_of(key, model_), unfinished = path + ".new";
  Header header = header_of(key, block);
  const int file = ::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (!move_all(file, ::writev, header, block, time_ns) || ::rename(unfinished.c_str(), path.c_str()) != 0) {
    ::unlink(unfinished.c_str());
    return false;
  }
  add(key, {.model = model_, .bytes = bytes, .time_ns = time_ns});
  return true;
}

}  // namespace minfer
