#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "engine/request/sequence.h"

namespace minfer {

/// KV blocks in a folder, a file each: FOLDER/MODEL/KEY, a header of 64 bytes (format, size, key, checksum) in front of the block. The files
/// of all models count against the bound; those go first that were used least recently, which is their time of modification.
///
/// A file is written under another name, then renamed. So a process that ends in the middle loses that file alone. Nothing is synced: a power
/// cut may leave a wrong file, whose checksum shows it when it is read. Such a file is removed. Only their owner can read the files. A lock
/// keeps other processes out of the folder. One thread reads and writes; any thread may ask touch().
class BlockFiles {
 public:
  static constexpr int64_t kHeaderBytes = 64;

  /// Makes the folder and the model's folder in it; `model` is a hash of all that blocks depend on beside their keys. Throws Error
  /// naming the folder if it cannot be used, or if another process uses it.
  BlockFiles(std::filesystem::path folder, int64_t max_bytes, const BlockKey& model);
  ~BlockFiles();

  /// True if there is a block of this key; it was used at `time_ns`, since 1970.
  bool touch(const BlockKey& key, int64_t time_ns);
  /// False: there is no such block, or it was damaged and is gone.
  bool read(const BlockKey& key, std::span<std::byte> block, int64_t time_ns);
  /// False: the block is not there, since the disk is full, or since all blocks there were used later.
  bool write(const BlockKey& key, std::span<std::byte> block, int64_t time_ns);

 private:
  struct File {
    std::string model;
    int64_t bytes, time_ns;
  };

  void find_files();
  void add(const BlockKey& key, File file);
  void remove(const BlockKey& key);
  bool make_room(int64_t bytes, int64_t time_ns);
  std::string path_of(const BlockKey& key, const std::string& model) const;

  const std::filesystem::path folder_;
  const std::string model_;
  const int64_t max_bytes_;
  int lock_ = -1;  ///< the descriptor of the locked file
  std::mutex mutex_;
  std::map<BlockKey, File> files_;
  std::set<std::pair<int64_t, BlockKey>> by_time_;
  int64_t bytes_ = 0;
};

}  // namespace minfer
