#pragma once

#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "server/hub/hub_name.h"

namespace minfer {

/// The folder of a repository in the cache that tools share, in huggingface_hub's layout
/// (https://huggingface.co/docs/huggingface_hub/guides/manage-cache):
///   models--ORG--REPO/blobs/SHA256, refs/main (a commit), snapshots/COMMIT/PATH -> ../../blobs/SHA256
/// Blobs are complete: minfer names one so once its hash is checked. Other processes may use the folder at the same time. Members that
/// change it throw std::filesystem::filesystem_error.
class HubCache {
 public:
  /// `root` is the folder of all repositories; neither need be there.
  HubCache(const std::filesystem::path& root, std::string repo);

  std::filesystem::path blob(const std::string& sha256) const { return folder_ / "blobs" / sha256; }
  /// The bytes so far of a blob that minfer fetches. huggingface_hub's name would be another.
  std::filesystem::path partial(const std::string& sha256) const { return blob(sha256 + ".minfer"); }
  std::filesystem::path snapshot(const std::string& commit) const { return folder_ / "snapshots" / commit; }
  /// The file that the process which fetches a blob locks with flock(), as huggingface_hub does.
  std::filesystem::path lock(const std::string& sha256) const { return locks_ / (sha256 + ".lock"); }
  /// The commit that main was when the hub was asked last; empty: not known.
  std::string commit() const;
  /// The complete GGUF files of main's snapshot.
  std::vector<HubFile> files() const;
  /// Links files, whose blobs are there, into a commit's snapshot, which becomes main's.
  void link(const std::string& commit, const std::vector<HubFile>& files) const;
  /// Removes the GGUF files of a quantisation from all snapshots, then the blobs that no snapshot links to; empty: everything, also blobs
  /// that are not complete. Returns the bytes that the blobs took.
  int64_t remove(const std::string& quant) const;
  /// The time at which a file's bytes were read or written last.
  std::time_t last_used(const HubFile& file) const;

 private:
  std::filesystem::path folder_, locks_;
};

/// The repositories, as ORG/REPO, that have a folder in `root`.
std::vector<std::string> cached_repos(const std::filesystem::path& root);

}  // namespace minfer
