#include "server/hub/hub_cache.h"

#include <algorithm>
#include <fstream>
#include <set>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace minfer {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "models--";

/// The sorted paths in a folder, with a recursive Iterator also those below it; none if it cannot be read.
template <class Iterator = fs::directory_iterator>
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (Iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    found.push_back(entry->path());
  std::ranges::sort(found);
  return found;
}

/// The name of the blob that a snapshot's file links to.
std::string linked_blob(const fs::path& link) {
  std::error_code error;
  return fs::read_symlink(link, error).filename().string();
}

struct stat status_of(const fs::path& path) {
  struct stat status {};
  ::stat(path.c_str(), &status);
  return status;
}

/// Puts what `make(path)` makes at `path` in one step: others see what was there before, or the new file. `repo`: a folder on the same disk.
template <class Make>
void replace(const fs::path& repo, const fs::path& path, const Make& make) {
  const fs::path made = repo / fmt::format(".made-{}", ::gettid());
  fs::remove(made);
  make(made);
  fs::rename(made, path);
}

}  // namespace

HubCache::HubCache(const fs::path& root, std::string repo) {
  repo.replace(repo.find('/'), 1, "--");
  const std::string name = std::string(kPrefix) + repo;
  folder_ = root / name;
  locks_ = root / ".locks" / name;
}

std::string HubCache::commit() const {
  std::string commit(40, ' ');
  std::ifstream(folder_ / "refs" / "main").read(commit.data(), 40);
  return commit.find_first_not_of("0123456789abcdef") == commit.npos ? commit : "";
}

std::vector<HubFile> HubCache::files() const {
  std::vector<HubFile> files;
  const fs::path folder = snapshot(commit());
  for (const fs::path& path : entries<fs::recursive_directory_iterator>(folder)) {
    const struct stat status = status_of(path);
    if (path.extension() == ".gguf" && S_ISREG(status.st_mode))
      files.push_back({path.lexically_relative(folder).generic_string(), status.st_size, linked_blob(path)});
  }
  return files;
}

void HubCache::link(const std::string& commit, const std::vector<HubFile>& files) const {
  for (const HubFile& file : files) {
    const fs::path path = snapshot(commit) / file.path;
    fs::create_directories(path.parent_path());
    if (linked_blob(path) == file.sha256) continue;
    replace(folder_, path, [&](const fs::path& made) {
      fs::create_symlink(blob(file.sha256).lexically_relative(path.parent_path()), made);
    });
  }
  fs::create_directories(folder_ / "refs");
  if (commit != this->commit())
    replace(folder_, folder_ / "refs" / "main", [&](const fs::path& made) { std::ofstream(made) << commit; });
}

int64_t HubCache::remove(const std::string& quant) const {
  std::set<std::string> linked;
  for (const fs::path& path : entries<fs::recursive_directory_iterator>(folder_ / "snapshots")) {
    if (fs::is_directory(fs::symlink_status(path))) continue;
    const std::string name = path.lexically_relative(folder_).generic_string();
    const bool is_wanted = quant.empty() || (path.extension() == ".gguf" && has_quant(name, quant));
    is_wanted ? (void)fs::remove(path) : (void)linked.insert(linked_blob(path));
  }
  int64_t freed = 0;
  for (const fs::path& path : entries(folder_ / "blobs")) {
    if (linked.contains(path.filename().string()) || (path.has_extension() && !quant.empty())) continue;
    freed += int64_t{status_of(path).st_blocks} * 512;
    fs::remove(path);
  }
  if (linked.empty() && entries(folder_ / "blobs").empty()) {
    fs::remove_all(folder_);
    fs::remove_all(locks_);
  }
  return freed;
}

std::time_t HubCache::last_used(const HubFile& file) const {
  const struct stat status = status_of(blob(file.sha256));
  return std::max(status.st_atime, status.st_mtime);
}

std::vector<std::string> cached_repos(const fs::path& root) {
  std::vector<std::string> repos;
  for (const fs::path& path : entries(root)) {
    const std::string name = path.filename().string();
    const size_t dashes = name.find("--", kPrefix.size());
    if (name.starts_with(kPrefix) && dashes != name.npos)
      repos.push_back(name.substr(kPrefix.size(), dashes - kPrefix.size()) + "/" + name.substr(dashes + 2));
  }
  return repos;
}

}  // namespace minfer
