#include "server/hub/hub.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include <boost/algorithm/string/case_conv.hpp>
#include <boost/algorithm/string/trim.hpp>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <sys/stat.h>

#include "kernels/base/error.h"
#include "models/gguf/printable.h"
#include "server/hub/hub_cache.h"
#include "server/terminal/terminal.h"

namespace minfer {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

/// Locks a file against other processes until it is closed; `waiting` is said if one has the lock.
File locked(const fs::path& path, const std::string& waiting) {
  fs::create_directories(path.parent_path());
  File file(std::fopen(path.c_str(), "ae"), std::fclose);
  if (file == nullptr) fail<FileError>("cannot write {}: {}", path.string(), std::strerror(errno));
  if (::flock(fileno(file.get()), LOCK_EX | LOCK_NB) == 0) return file;
  print_notice(waiting);
  ::flock(fileno(file.get()), LOCK_EX);  // refused where file systems have no locks
  return file;
}

/// The GGUF files of a repository at a commit.
struct Listing {
  std::string commit;
  std::vector<HubFile> files;
};

/// Reads the answer of /api/models/ORG/REPO/revision/main?blobs=true, huggingface_hub's model_info().
Listing parse_listing(const HubName& name, const std::string& body) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 44;
  constexpr size_t kKeptBytes = 16 << 20;  // of an HttpAnswer
  if (body.size() >= kKeptBytes) fail<FileError>("{}: the hub's answer has 16 MiB or more", name.text());
  const auto is_hexadecimal = [](const std::string& text, size_t digits) {
    return text.size() == digits && text.find_first_not_of("0123456789abcdef") == text.npos;
  };
  try {
    const auto json = nlohmann::json::parse(body);
    Listing listing{.commit = json.at("sha"), .files = {}};
    if (!is_hexadecimal(listing.commit, 40))
      fail<FileError>("{}: the hub names the commit \"{}\", expected 40 hexadecimal digits", name.text(),
                      printable(listing.commit));
    for (const auto& file : json.at("siblings")) {
      const std::string path = file.at("rfilename");
      const auto large = file.find("lfs");  // only files in LFS have a SHA-256
      if (!path.ends_with(".gguf") || large == file.end() || large->is_null()) continue;
      const auto& size = file.at("size");
      const std::string sha256 = large->at("sha256");
      if (!is_hexadecimal(sha256, 64) || !size.is_number_unsigned() || size == 0 || size > kMostBytes)
        fail<FileError>("{}: the hub names no size and SHA-256 of {}", name.text(), printable(path));
      listing.files.push_back({path, size.get<int64_t>(), sha256});
    }
    return listing;
  } catch (const nlohmann::json::exception& error) {
    fail<FileError>("{}: the hub's answer has another form than its API's: {}", name.text(),
                    printable(error.what(), 300));
  }
}

/// Fetches files that the cache lacks.
void fetch_missing(HttpClient& client, const HubName& name, const Listing& listing,
                   const std::vector<HubFile>& files, const HubSettings& settings) {
  const HubCache cache(settings.cache, name.repo);
  const auto missing_bytes = [&](const HubFile& file) {
    struct stat status {};
    if (fs::exists(cache.blob(file.sha256))) return int64_t{0};
    ::stat(cache.partial(file.sha256).c_str(), &status);
    return std::max<int64_t>(file.bytes - status.st_blocks * 512, 0);
  };
  for (const HubFile& file : files) {
    const fs::path blob = cache.blob(file.sha256), partial = cache.partial(file.sha256);
    if (fs::exists(blob)) continue;
    const auto lock =
        locked(cache.lock(file.sha256),
               fmt::format("minfer: another process fetches {}: waiting for it\n", file.name()));
    if (fs::exists(blob)) continue;
    fs::create_directories(blob.parent_path());
    int64_t needed = 0;
    for (const HubFile& each : files)
      needed += missing_bytes(each);
    const auto available = static_cast<int64_t>(fs::space(blob.parent_path()).available);
    if (needed > available)
      fail<FileError>("{}: {} more are needed in {}, {} are free (HF_HUB_CACHE names another folder)",
                      name.text(), size_text(needed), settings.cache.string(), size_text(available));
    print_notice(fmt::format("minfer: fetching {} ({}) from {}\n", file.name(), size_text(file.bytes),
                             settings.endpoint));
    const std::string target = fmt::format("/{}/resolve/{}/{}", name.repo, listing.commit, file.path);
    fetch_file(client, target, file, partial, settings.fetch);
    fs::rename(partial, blob);
  }
  cache.link(listing.commit, files);
}

}  // namespace

HubSettings hub_settings() {
  HubSettings settings;
  const auto either = [](const std::string& first, const fs::path& second) {
    return first.empty() ? second : fs::path(first);
  };
  const fs::path caches = either(variable("XDG_CACHE_HOME"), fs::path(variable("HOME")) / ".cache");
  const fs::path home = either(variable("HF_HOME"), caches / "huggingface");
  settings.cache = fs::absolute(either(variable("HF_HUB_CACHE"), home / "hub"));
  settings.endpoint = either(variable("HF_ENDPOINT"), "https://huggingface.co");
  settings.token = variable("HF_TOKEN");
  std::ifstream token(home / "token");
  if (settings.token.empty()) std::getline(token, settings.token);
  boost::trim(settings.token);
  const std::string offline = boost::to_lower_copy(variable("HF_HUB_OFFLINE"));
  settings.offline = offline == "1" || offline == "on" || offline == "yes" || offline == "true";
  return settings;
}

fs::path hub_model(const HubName& name, const HubSettings& settings) {
  const HubCache cache(settings.cache, name.repo);
  std::string reason = "offline by HF_HUB_OFFLINE or --offline";
  if (!settings.offline) {
    HttpClient client(settings.endpoint, {.headers = {"User-Agent: minfer/" MINFER_VERSION},
                                          .follows_redirects = true,
                                          .uses_proxy = true,
                                          .bearer_token = settings.token});
    const HttpAnswer answer = client.ask({fmt::format("/api/models/{}/revision/main?blobs=true", name.repo)},
                                         30, "no answer within 30 s");
    if (answer.error.empty() && answer.status == 200) {
      const Listing listing = parse_listing(name, answer.body);
      const std::vector<HubFile> files = choose_files(listing.files, name, settings.endpoint);
      fetch_missing(client, name, listing, files, settings);
      return cache.snapshot(listing.commit) / files.front().path;
    }
    reason = answer.error.empty() ? fmt::format("{} answers {}", settings.endpoint, answer.status)
                                  : fmt::format("{}: {}", settings.endpoint, answer.error);
    if (answer.error.empty() && answer.status >= 401 && answer.status <= 404)
      fail<FileError>(
          "{}: {}: there is no such model, or it wants a token (HF_TOKEN) whose owner has accepted its terms",
          name.text(), reason);
  }
  const std::vector<HubFile> files = cache.files();
  if (files.empty())
    fail<FileError>("{}: {}, and {} has no file of it", name.text(), reason, settings.cache.string());
  const fs::path path = cache.snapshot(cache.commit()) / choose_files(files, name, "the cache").front().path;
  if (!settings.offline)
    print_notice(fmt::format("minfer: {}: using {} of the cache\n", reason, path.filename().string()));
  return path;
}

std::string local_model(const std::string& spec) {
  return spec.starts_with(HubName::kPrefix) ? hub_model(HubName::parse(spec), hub_settings()).string() : spec;
}

}  // namespace minfer
