#include "tests/support/server/hub_server.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <openssl/evp.h>

namespace minfer::test {
namespace {

std::string hash_of(std::string_view bytes, const EVP_MD* method) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> hash{};
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(), hash.data(), &size, method, nullptr);
  std::string text;
  for (unsigned int i = 0; i < size; ++i)
    text += fmt::format("{:02x}", hash[i]);
  return text;
}

std::string unescaped(const std::string& path) {
  std::string text;
  for (size_t i = 0; i < path.size(); ++i) {
    text += path[i] == '%' ? static_cast<char>(std::stoi(path.substr(i + 1, 2), nullptr, 16)) : path[i];
    if (path[i] == '%') i += 2;
  }
  return text;
}

}  // namespace

std::string sha256_of(std::string_view bytes) {
  return hash_of(bytes, EVP_sha256());
}

std::string git_hash_of(std::string_view bytes) {
  return hash_of(fmt::format("blob {}", bytes.size()) + '\0' + std::string(bytes), EVP_sha1());
}

HubServer::HubServer(std::vector<File> files)
    : files_(std::move(files)),
      store_([this](ServedRequest& request) { return answer_store(request); }),
      hub_([this](ServedRequest& request) { return answer_hub(request); }) {}

std::string HubServer::true_listing() const {
  nlohmann::json siblings =
      nlohmann::json::array({{{"rfilename", "README.md"}, {"size", 3}, {"blobId", "x"}}});
  for (const File& file : files_) {
    nlohmann::json sibling{
        {"rfilename", file.path}, {"size", file.content.size()}, {"blobId", git_hash_of(file.content)}};
    if (file.is_large)
      sibling["lfs"] = {
          {"sha256", sha256_of(file.content)}, {"size", file.content.size()}, {"pointerSize", 134}};
    siblings.push_back(sibling);
  }
  return nlohmann::json{{"id", "org/repo"}, {"sha", kCommit}, {"siblings", siblings}}.dump();
}

bool HubServer::answer_hub(ServedRequest& request) {
  note(hub_heads_, request);
  if (hub_status != 200) return request.respond(hub_status, "{}"), true;
  if (request.target == "/api/models/org/repo/revision/main?blobs=true")
    return request.respond(200, listing.empty() ? true_listing() : listing), true;
  const std::string prefix = fmt::format("/org/repo/resolve/{}/", kCommit);
  const std::string path = unescaped(request.target.substr(std::min(prefix.size(), request.target.size())));
  const auto file = std::ranges::find(files_, path, &File::path);
  if (!request.target.starts_with(prefix) || file == files_.end()) return request.respond(404, "{}"), true;
  request.write(fmt::format(
      "HTTP/1.1 302 Found\r\nLocation: {}/{}\r\nX-Linked-Etag: \"{}\"\r\nX-Linked-Size: {}\r\nX-Repo-Commit: "
      "{}\r\n"
      "Content-Length: 5\r\n\r\nmoved",
      store_.url(), file - files_.begin(), sha256_of(file->content), file->content.size(), kCommit));
  return true;
}

bool HubServer::answer_store(ServedRequest& request) {
  note(store_heads_, request);
  if (misbehave && misbehave(request)) return false;
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
      body.size(), sha256_of(content).substr(0, 32),
      is_part ? fmt::format("Content-Range: bytes {}-{}/{}\r\n", first, last, content.size()) : ""));
  const bool breaks_now = breaks > 0 && static_cast<int64_t>(body.size()) > break_after_bytes && breaks-- > 0;
  if (breaks_now) body.resize(static_cast<size_t>(break_after_bytes.load()));
  bytes_sent_ += static_cast<int64_t>(body.size());
  request.write(body);
  return !breaks_now;
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
