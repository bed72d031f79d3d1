// Models by name, from a hub of the tests' own that fails in every way that they can think of.
#include "server/hub/hub.h"

#include <csignal>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include "kernels/base/error.h"
#include "server/hub/hub_cache.h"
#include "tests/support/refusal.h"
#include "tests/support/server/hub_server.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/wait.h"

namespace minfer {
namespace {

namespace fs = std::filesystem;
using test::HubServer;
using test::refusal_of;
using test::ServedRequest;
using testing::AllOf;
using testing::AnyOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

constexpr int64_t kMegabyte = 1'000'000;

std::string random_bytes(size_t count, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::string bytes(count, '\0');
  for (size_t i = 0; i + 4 <= count; i += 4) {
    const uint32_t word = static_cast<uint32_t>(random());
    std::memcpy(&bytes[i], &word, sizeof word);
  }
  return bytes;
}

std::string content_of(const fs::path& path) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  std::string content(error ? 0 : size, '\0');
  std::ifstream(path, std::ios::binary).read(content.data(), std::ssize(content));
  return content;
}

class HubTest : public testing::Test {
 protected:
  static constexpr const char* kPath = "folder/m@1+1-Q4_K_M.gguf";

  HubSettings settings_of(const HubServer& server) const {
    HubSettings settings{.endpoint = server.url(), .token = "secret", .cache = dir_.path() / "hub"};
    settings.fetch.backoff_ns = 1'000'000;
    return settings;
  }
  static fs::path fetch(const HubSettings& settings, const std::string& spec = "hf:org/repo") {
    return hub_model(HubName::parse(spec), settings);
  }
  fs::path repo() const { return dir_.path() / "hub" / "models--org--repo"; }
  /// Names of the files in the folder of blobs.
  std::vector<std::string> blobs() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(repo() / "blobs"))
      names.push_back(entry.path().filename().string());
    return names;
  }

  test::TemporaryDirectory dir_;
  const std::string content_ = random_bytes(3'000'001);
};

TEST_F(HubTest, FetchesIntoTheLayoutOfHuggingfaceHub) {
  HubServer server({{kPath, content_}, {"m-Q8_0.gguf", "other"}});
  const fs::path path = fetch(settings_of(server));
  EXPECT_EQ(path, repo() / "snapshots" / HubServer::kCommit / kPath);
  EXPECT_EQ(content_of(path), content_);
  EXPECT_EQ(fs::read_symlink(path), "../../../blobs/" + test::sha256_of(content_));
  EXPECT_EQ(content_of(repo() / "refs" / "main"), HubServer::kCommit);
  EXPECT_THAT(blobs(), testing::ElementsAre(test::sha256_of(content_)));
  const size_t requests = server.store_requests().size();
  EXPECT_EQ(fetch(settings_of(server)), path);
  EXPECT_THAT(server.store_requests(), SizeIs(requests)) << "what is there is not fetched again";
}

TEST_F(HubTest, FetchesAllPartsOfASplitModel) {
  const std::vector<std::string> parts{random_bytes(100'000, 1), random_bytes(200'000, 2),
                                       random_bytes(50'000, 3)};
  HubServer server({{"m-00002-of-00003.gguf", parts[1]},
                    {"m-00001-of-00003.gguf", parts[0]},
                    {"m-00003-of-00003.gguf", parts[2]}});
  const fs::path first = fetch(settings_of(server));
  EXPECT_EQ(first.filename(), "m-00001-of-00003.gguf");
  for (size_t i = 0; i < parts.size(); ++i)
    EXPECT_EQ(content_of(first.parent_path() / fmt::format("m-0000{}-of-00003.gguf", i + 1)), parts[i]);
}

TEST_F(HubTest, TheTokenGoesToTheHubAlone) {
  HubServer server({{kPath, content_}});
  fetch(settings_of(server));
  EXPECT_THAT(server.hub_requests(),
              AllOf(Not(IsEmpty()), Each(HasSubstr("Authorization: Bearer secret\r\n"))));
  EXPECT_THAT(server.store_requests(), AllOf(Not(IsEmpty()), Each(Not(HasSubstr("secret")))));
}

TEST_F(HubTest, ConnectionsThatBreakEightyTimesAreTakenUpWhereTheyBroke) {
  const std::string content = random_bytes(30 * kMegabyte);
  HubServer server({{kPath, content}});
  // Eight stripes break at most 12 times each, so one does so more often than a connection may fail in a row.
  server.break_after_bytes = 300'000;
  server.breaks = 80;
  EXPECT_EQ(content_of(fetch(settings_of(server))), content);
  EXPECT_EQ(server.breaks, 0);
  EXPECT_EQ(server.stored_bytes_sent(), 30 * kMegabyte) << "nothing is asked for twice";
  EXPECT_EQ(server.store_requests().size(), 88u);
}

TEST_F(HubTest, ALaterFetchGoesOnWithWhatIsThere) {
  const std::string content = random_bytes(30 * kMegabyte);
  HubServer server({{kPath, content}});
  server.set_fault([&](ServedRequest& request) {
    if (server.stored_bytes_sent() < 8 * kMegabyte) return false;
    request.respond(503, "later");
    return true;
  });
  server.break_after_bytes = kMegabyte;
  server.breaks = 1'000;
  EXPECT_THAT(refusal_of([&] { fetch(settings_of(server)); }),
              AllOf(HasSubstr("503"), HasSubstr("7 times"), HasSubstr("kept")));
  ASSERT_THAT(blobs(), testing::ElementsAre(test::sha256_of(content) + ".minfer"));
  EXPECT_FALSE(fs::exists(repo() / "snapshots"));
  // Eight stripes, and behind the bytes how far each is there.
  int64_t kept = 0;
  const std::string marks = content_of(repo() / "blobs" / blobs().front()).substr(content.size());
  ASSERT_EQ(marks.size(), 64u);
  for (int64_t i = 0; i < 8; ++i) {
    int64_t mark = 0;
    std::memcpy(&mark, &marks[static_cast<size_t>(i) * sizeof mark], sizeof mark);
    kept += mark - i * (30 * kMegabyte / 8);
  }
  EXPECT_GT(kept, 0);
  server.set_fault(nullptr);
  server.breaks = 0;
  const int64_t before = server.stored_bytes_sent();
  EXPECT_EQ(content_of(fetch(settings_of(server))), content);
  EXPECT_EQ(server.stored_bytes_sent() - before, 30 * kMegabyte - kept);
  EXPECT_THAT(blobs(), SizeIs(1));
}

TEST_F(HubTest, AServerThatIgnoresRangesIsReadFromTheBeginning) {
  HubServer server({{kPath, content_}});
  server.ignores_ranges = true;
  server.break_after_bytes = kMegabyte;
  server.breaks = 4;
  EXPECT_EQ(content_of(fetch(settings_of(server))), content_);
}

TEST_F(HubTest, AConnectionThatFallsSilentIsTriedAgain) {
  std::atomic<int> silent = 3;
  HubServer server({{kPath, content_}});
  server.set_fault([&](ServedRequest& request) {
    if (silent-- <= 0) return false;
    request.write("HTTP/1.1 206 Part\r\nContent-Length: 1000000\r\n\r\n");
    request.wait_until_closed();
    return true;
  });
  HubSettings settings = settings_of(server);
  settings.fetch.stall_ns = 1'000'000'000;
  EXPECT_EQ(content_of(fetch(settings)), content_);
  EXPECT_LT(silent, 0);
}

TEST_F(HubTest, WrongBytesAreFoundNamedAndRemoved) {
  HubServer server({{kPath, content_}});
  server.wrong_byte = 2'222'222;
  EXPECT_THAT(
      refusal_of([&] { fetch(settings_of(server)); }),
      AllOf(HasSubstr("m@1+1-Q4_K_M.gguf"), HasSubstr(test::sha256_of(content_)), HasSubstr("removed")));
  EXPECT_THAT(blobs(), IsEmpty());
  EXPECT_FALSE(fs::exists(repo() / "snapshots"));
  server.wrong_byte = -1;
  EXPECT_EQ(content_of(fetch(settings_of(server))), content_);
}

TEST_F(HubTest, MoreBytesThanAnnouncedAreRefused) {
  HubServer server({{kPath, content_}});
  for (const char* head : {"HTTP/1.1 206 Part\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"}) {
    server.set_fault([this, head](ServedRequest& request) {
      request.write(head + content_ + "and more");
      return true;
    });
    EXPECT_THAT(refusal_of([&] { fetch(settings_of(server)); }), HasSubstr("more than the 3000001 bytes"))
        << head;
    EXPECT_LE(fs::file_size(repo() / "blobs" / (test::sha256_of(content_) + ".minfer")),
              content_.size() + 64);
  }
}

TEST_F(HubTest, ARefusalOfTheStoreIsNotTriedAgain) {
  HubServer server({HubServer::File{kPath, "short"}});
  server.set_fault([](ServedRequest& request) {
    request.respond(404, "gone");
    return true;
  });
  EXPECT_THAT(refusal_of([&] { fetch(settings_of(server)); }), HasSubstr("404"));
  EXPECT_THAT(server.store_requests(), SizeIs(1));
}

TEST_F(HubTest, AHubThatKnowsNoSuchModelIsNamedWithTheReason) {
  HubServer server({{kPath, content_}});
  for (const int status : {401, 403, 404}) {
    server.hub_status = status;
    EXPECT_THAT(refusal_of([&] { fetch(settings_of(server)); }),
                AllOf(HasSubstr("hf:org/repo"), HasSubstr(std::to_string(status)), HasSubstr("HF_TOKEN"),
                      HasSubstr(server.url())));
  }
  EXPECT_FALSE(fs::exists(repo()));
}

TEST_F(HubTest, TheCacheServesWhenTheHubCannot) {
  HubServer server({{"m-Q8_0.gguf", content_}, {"m-Q4_K_M.gguf", "another"}});
  const fs::path path = fetch(settings_of(server), "hf:org/repo:Q8_0");
  HubSettings unreachable = settings_of(server);
  unreachable.endpoint = "http://127.0.0.1:1";
  EXPECT_EQ(fetch(unreachable), path);  // of those that are there
  EXPECT_THAT(refusal_of([&] { fetch(unreachable, "hf:org/repo:Q4_K_M"); }),
              AllOf(HasSubstr("the cache"), HasSubstr("Q8_0")));
  EXPECT_THAT(refusal_of([&] { fetch(unreachable, "hf:org/other"); }),
              AllOf(HasSubstr("hf:org/other"), HasSubstr("connection refused")));
  server.hub_status = 500;
  EXPECT_EQ(fetch(settings_of(server)), path);
}

TEST_F(HubTest, OfflineAsksNobody) {
  HubServer server({{"m-Q8_0.gguf", content_}});
  HubSettings offline = settings_of(server);
  offline.offline = true;
  EXPECT_THAT(
      refusal_of([&] { fetch(offline); }),
      AllOf(HasSubstr("hf:org/repo"), HasSubstr("HF_HUB_OFFLINE"), HasSubstr(offline.cache.string())));
  EXPECT_THAT(server.hub_requests(), IsEmpty());
  const fs::path path = fetch(settings_of(server));
  EXPECT_EQ(fetch(offline), path);
  EXPECT_THAT(server.hub_requests(), SizeIs(testing::Ge(2u)));
}

TEST_F(HubTest, AnIncompleteFileIsNoModel) {
  HubServer server({{kPath, content_}});
  server.wrong_byte = 1;
  EXPECT_NE(refusal_of([&] { fetch(settings_of(server)); }), "");
  HubSettings offline = settings_of(server);
  offline.offline = true;
  EXPECT_THAT(refusal_of([&] { fetch(offline); }), HasSubstr("no file of it"));
}

TEST_F(HubTest, ADiskWithoutRoomIsSaidBeforehand) {
  HubServer server({{"m-00001-of-00002.gguf", content_}, {"m-00002-of-00002.gguf", "x"}});
  nlohmann::json listing = nlohmann::json::parse(server.true_listing());
  listing["siblings"][2]["size"] = int64_t{16} << 40;  // the second part, so that there is room for the first
  server.set_listing(listing.dump());
  EXPECT_THAT(refusal_of([&] { fetch(settings_of(server)); }),
              AllOf(HasSubstr("17592 GB"), HasSubstr("are free"), HasSubstr("HF_HUB_CACHE")));
  EXPECT_THAT(server.store_requests(), IsEmpty());
}

/// Bounds the files that this process writes, as a full disk would.
class FileLimit {
 public:
  FileLimit() {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, SIG_IGN);
  }
  ~FileLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;
  void set(rlim_t bytes) const {
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }

 private:
  rlimit before_{};
};

TEST_F(HubTest, AWriteThatFailsEndsTheFetchAndKeepsTheRest) {
  HubServer server({{kPath, content_}});
  {
    const FileLimit limit;
    server.set_fault([&](ServedRequest&) {
      limit.set(2'500'000);
      return false;
    });
    EXPECT_THAT(refusal_of([&] { fetch(settings_of(server)); }),
                AllOf(HasSubstr("cannot write"), HasSubstr("File too large"), HasSubstr("kept")));
    server.set_fault(nullptr);
  }
  EXPECT_EQ(content_of(fetch(settings_of(server))), content_);
  {
    const FileLimit limit;
    limit.set(1'000);
    HubServer other({{"m.gguf", content_ + "x"}});
    EXPECT_THAT(refusal_of([&] { fetch(settings_of(other)); }), HasSubstr("File too large"));
    EXPECT_THAT(other.store_requests(), IsEmpty());
  }
}

TEST_F(HubTest, ListingsThatMayNotBeTrustedAreRefused) {
  HubServer server({{"m.gguf", content_}});
  const auto with = [&](const auto& change) {
    nlohmann::json listing = nlohmann::json::parse(server.true_listing());
    change(listing, listing["siblings"][1]);
    return listing.dump();
  };
  const std::vector<std::pair<std::string, std::string>> cases{
      {"no JSON", "form"},
      {"[]", "form"},
      {"{}", "form"},
      {std::string(100'000, '['), "form"},
      {with([](auto& all, auto&) { all["sha"] = "../../.."; }), "commit"},
      {with([](auto& all, auto&) { all["sha"] = 1; }), "form"},
      {with([](auto& all, auto&) { all["siblings"] = "x"; }), "form"},
      {with([](auto&, auto& file) { file["rfilename"] = "../../m.gguf"; }), "inside the repository"},
      {with([](auto&, auto& file) { file["rfilename"] = "/tmp/m.gguf"; }), "inside the repository"},
      {with([](auto&, auto& file) { file["rfilename"] = std::string("a\0/m.gguf", 9); }),
       "inside the repository"},
      {with([](auto&, auto& file) { file["lfs"]["sha256"] = "../../../m"; }), "size and SHA-256"},
      {with([](auto&, auto& file) { file["lfs"]["sha256"] = 7; }), "form"},
      {with([](auto&, auto& file) { file["lfs"] = nullptr; }), "none"},
      {with([](auto&, auto& file) { file.erase("lfs"); }), "none"},
      {with([](auto&, auto& file) { file["size"] = -1; }), "size and SHA-256"},
      {with([](auto&, auto& file) { file["size"] = 0; }), "size and SHA-256"},
      {with([](auto&, auto& file) { file["size"] = 1e18; }), "size and SHA-256"},
      {with([](auto&, auto& file) { file["size"] = uint64_t{1} << 60; }), "size and SHA-256"},
      {with([](auto&, auto& file) { file.erase("size"); }), "form"},
      {"{\"sha\": \"" + std::string(17 << 20, 'x') + "\"}", "16 MiB"},
  };
  for (const auto& [listing, word] : cases) {
    server.set_listing(listing);
    EXPECT_THAT(refusal_of([&] { fetch(settings_of(server)); }),
                AllOf(HasSubstr("hf:org/repo"), HasSubstr(word)))
        << listing.substr(0, 300);
  }
  EXPECT_THAT(server.store_requests(), IsEmpty());
  EXPECT_FALSE(fs::exists(dir_.path() / "hub"));
}

TEST_F(HubTest, TheSizeOfTheListingIsTheOneThatCounts) {
  HubServer server({{"m.gguf", content_}});
  nlohmann::json listing = nlohmann::json::parse(server.true_listing());
  listing["siblings"][1]["size"] = content_.size() - 1;
  server.set_listing(listing.dump());
  EXPECT_THAT(refusal_of([&] { fetch(settings_of(server)); }), HasSubstr("SHA-256"));  // of its beginning
  listing["siblings"][1]["size"] = content_.size() + 1;
  server.set_listing(listing.dump());
  EXPECT_THAT(refusal_of([&] { fetch(settings_of(server)); }),
              AnyOf(HasSubstr("early"), HasSubstr("closed")));
  EXPECT_FALSE(fs::exists(repo() / "snapshots"));
}

TEST_F(HubTest, TwoAtOnceFetchOnce) {
  HubServer server({{kPath, content_}});
  const auto fetch_it = [&] { EXPECT_EQ(content_of(fetch(settings_of(server))), content_); };
  std::thread other(fetch_it);
  fetch_it();
  other.join();
  EXPECT_EQ(server.stored_bytes_sent(), std::ssize(content_));
}

TEST_F(HubTest, RemovesAQuantisationAndTheBlobsThatNothingLinksTo) {
  HubServer server({{"m-Q8_0.gguf", content_}, {"m-Q4_K_M.gguf", "small"}, {"same-Q8_0-Q6_K.gguf", "small"}});
  const HubSettings settings = settings_of(server);
  for (const char* spec : {"hf:org/repo:Q8_0", "hf:org/repo:Q4_K_M", "hf:org/repo:Q6_K"})
    fetch(settings, spec);
  const HubCache cache(settings.cache, "org/repo");
  EXPECT_THAT(cache.files(), SizeIs(3));
  EXPECT_THAT(blobs(), SizeIs(2));
  cache.remove("q4_k_m");
  EXPECT_THAT(cache.files(), SizeIs(2));
  EXPECT_THAT(blobs(), SizeIs(2)) << "another file has the same bytes";
  cache.remove("Q8_0");
  EXPECT_THAT(cache.files(), IsEmpty());
  EXPECT_FALSE(fs::exists(repo()));
  EXPECT_THAT(cached_repos(settings.cache), IsEmpty());
}

TEST_F(HubTest, SettingsAreThoseOfHuggingfaceHub) {
  const std::vector<const char*> names{"HF_ENDPOINT",    "HF_TOKEN",       "HF_HOME", "HF_HUB_CACHE",
                                       "XDG_CACHE_HOME", "HF_HUB_OFFLINE", "HOME"};
  std::vector<std::pair<const char*, std::optional<std::string>>> before;
  for (const char* name : names) {
    const char* const value = std::getenv(name);
    before.emplace_back(name, value == nullptr ? std::nullopt : std::optional<std::string>(value));
    ::unsetenv(name);
  }
  ::setenv("HOME", "/home/a", 1);
  EXPECT_EQ(hub_settings().endpoint, "https://huggingface.co");
  EXPECT_EQ(hub_settings().cache, "/home/a/.cache/huggingface/hub");
  EXPECT_EQ(hub_settings().token, "");
  EXPECT_FALSE(hub_settings().offline);
  ::setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(hub_settings().cache, "/x/huggingface/hub");
  ::setenv("HF_HOME", dir_.path().c_str(), 1);
  EXPECT_EQ(hub_settings().cache, dir_.path() / "hub");
  std::ofstream(dir_.path() / "token") << " of-a-file\n";
  EXPECT_EQ(hub_settings().token, "of-a-file");
  ::setenv("HF_TOKEN", "of-the-environment", 1);
  EXPECT_EQ(hub_settings().token, "of-the-environment");
  ::setenv("HF_HUB_CACHE", "/y", 1);
  EXPECT_EQ(hub_settings().cache, "/y");
  ::setenv("HF_ENDPOINT", "http://127.0.0.1:1", 1);
  EXPECT_EQ(hub_settings().endpoint, "http://127.0.0.1:1");
  for (const char* yes : {"1", "ON", "yes", "True"}) {
    ::setenv("HF_HUB_OFFLINE", yes, 1);
    EXPECT_TRUE(hub_settings().offline) << yes;
  }
  ::setenv("HF_HUB_OFFLINE", "0", 1);
  EXPECT_FALSE(hub_settings().offline);
  EXPECT_EQ(local_model("llama.gguf"), "llama.gguf");
  for (const auto& [name, value] : before)
    value ? ::setenv(name, value->c_str(), 1) : ::unsetenv(name);
}

}  // namespace
}  // namespace minfer
