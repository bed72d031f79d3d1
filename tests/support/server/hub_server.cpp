#include "tests/support/server/hub_server.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <openssl/evp.h>

namespace minfer::test {
std::string sha256_of(std::string_view bytes) {
  std::array<unsigned char, 32> hash{};
  EVP_Digest(bytes.data(), bytes.size(), hash.data(), nullptr, EVP_sha256(), nullptr);
  std::string text;
  for (const unsigned char byte : hash)
    text += fmt::format("{:02x}", byte);
  return text;
}

HubServer::HubServer(std::vector<File> files)
    : files_(std::move(files)),
      store_([this](ServedRequest& request) { return answer_store(request); }),
      hub_([this](ServedRequest& request) { return answer_hub(request); }) {}

std::string HubServer::true_listing() const {
  nlohmann::json siblings =
      nlohmann::json::array({{{"rfilename", "README.md"}, {"size", 3}, {"blobId", "x"}}});
  for (const File& file : files_)
    siblings.push_back(
        {{"rfilename", file.path},
         {"size", file.content.size()},
         {"blobId", HubServer::kCommit},
         {"lfs", {{"sha256", file.sha256}, {"size", file.content.size()}, {"pointerSize", 134}}}});
  return nlohmann::json{{"id", "org/repo"}, {"sha", kCommit}, {"siblings", siblings}}.dump();
}

bool HubServer::answer_hub(ServedRequest& request) {
  note(hub_heads_, request);
  if (hub_status != 200) return request.respond(hub_status, "{}"), true;
  if (request.target == "/api/models/org/repo/revision/main?blobs=true")
    return request.respond(200, shown_listing()), true;
  const std::string prefix = fmt::format("/org/repo/resolve/{}/", kCommit);
  const std::string path = request.target.substr(std::min(prefix.size(), request.target.size()));
  const auto file = std::ranges::find(files_, path, &File::path);
  if (!request.target.starts_with(prefix) || file == files_.end()) return request.respond(404, "{}"), true;
  request.write(fmt::format(
      "HTTP/1.1 302 Found\r\nLocation: {}/{}\r\nX-Linked-Etag: \"{}\"\r\nX-Linked-Size: {}\r\nX-Repo-Commit: "
      "{}\r\n"
      "Content-Length: 5\r\n\r\nmoved",
      store_.url(), file - files_.begin(), file->sha256, file->content.size(), kCommit));
  return true;
}

bool HubServer::answer_store(ServedRequest& request) {
  note(store_heads_, request);
  {
    const std::shared_lock lock(fault_mutex_);
    if (fault_ && fault_(request)) return false;
  }
  const std::string& content = files_.at(std::stoul(request.target.substr(1))).content;
  size_t first = 0, last = content.size() - 1;
  const std::string range = request.header("Range");
  const bool is_part = !ignores_ranges && std::sscanf(range.c_str(), "bytes=%zu-%zu", &first, &last) == 2;
  std::string body = content.substr(first, last - first + 1);
  if (const auto wrong = static_cast<size_t>(wrong_byte.load());
      wrong >= first && wrong < first + body.size())
    body[wrong - first] ^= 1;
  request.write(fmt::format(
      "HTTP/1.1 {}\r\nContent-Length: {}\r\nETag: \"{}\"\r\n{}\r\n", is_part ? "206 Part" : "200 OK",
      body.size(), "of-the-store",
      is_part ? fmt::format("Content-Range: bytes {}-{}/{}\r\n", first, last, content.size()) : ""));
  const bool breaks_now = breaks > 0 && static_cast<int64_t>(body.size()) > break_after_bytes && breaks-- > 0;
  if (breaks_now) body.resize(static_cast<size_t>(break_after_bytes.load()));
  bytes_sent_ += static_cast<int64_t>(body.size());
  request.write(body);
  return !breaks_now;
}

void HubServer::set_listing(std::string listing) {
  const std::lock_guard lock(mutex_);
  listing_ = std::move(listing);
}

std::string HubServer::shown_listing() const {
  const std::lock_guard lock(mutex_);
  return listing_.empty() ? true_listing() : listing_;
}

void HubServer::set_fault(Script fault) {
  const std::unique_lock lock(fault_mutex_);
  fault_ = std::move(fault);
}

std::vector<std::string> HubServer::copy_of(const std::vector<std::string>& heads) const {
  const std::lock_guard lock(mutex_);
  return heads;
}

void HubServer::note(std::vector<std::string>& heads, const ServedRequest& request) {
  const std::lock_guard lock(mutex_);
  heads.push_back(request.head);
}

}  // namespace minfer::test
