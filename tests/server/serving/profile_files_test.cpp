// Profile files that a server writes between start and stop.
#include <csignal>
#include <set>

#include <sys/resource.h>

#include "profiling/json/json_reader.h"
#include "tests/support/server/profile_routes_run.h"

namespace minfer {
namespace {

using Json = nlohmann::json;
using test::ProfileRoutesTest;

/// While it lives, no file of this process can grow beyond that many bytes.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    set({bytes, before_.rlim_max});
  }
  ~FileSizeLimit() { set(before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  static void set(const rlimit& limit) { EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0); }
  rlimit before_{};
};

TEST_F(ProfileRoutesTest, WritesTheStepsBetweenStartAndStop) {
  complete(5);
  const Json started = Json::parse(post("/start_profile").body);
  complete(10);
  complete(7);
  const Json stopped = Json::parse(post("/stop_profile").body);
  complete(3);
  EXPECT_EQ(started.at("detail"), "op");
  EXPECT_EQ(started.at("file"), stopped.at("file"));
  EXPECT_EQ(stopped.at("steps"), 17);
  EXPECT_EQ(stopped.at("dropped"), 0);
  const ProfileFile file = read_profile(started.at("file").get<std::string>());
  EXPECT_TRUE(file.note.empty());
  ASSERT_EQ(file.steps.size(), 17u);
  EXPECT_EQ(file.steps.front().step, 5);
  EXPECT_EQ(file.steps.back().step, 21);
  EXPECT_EQ(file.steps.front().requests.size(), 1u);
  EXPECT_TRUE(file.steps.front().layers.empty());
}

TEST_F(ProfileRoutesTest, RequestIdsAreCollectedOnlyForAFile) {
  complete(2);
  EXPECT_EQ(probe_.num_ids, 0u);
  post("/start_profile");
  complete(2);
  EXPECT_EQ(probe_.num_ids, 2u);
  post("/stop_profile");
  complete(2);
  EXPECT_EQ(probe_.num_ids, 2u);
}

TEST_F(ProfileRoutesTest, WritesLayersIfAsked) {
  EXPECT_EQ(Json::parse(post("/start_profile", R"({"detail":"layer"})").body).at("detail"), "layer");
  complete(2);
  const Json stopped = Json::parse(post("/stop_profile").body);
  const ProfileFile file = read_profile(stopped.at("file").get<std::string>());
  EXPECT_EQ(file.header.detail, ProfileDetail::layer);
  ASSERT_EQ(file.steps.size(), 2u);
  EXPECT_FALSE(file.steps.front().layers.empty());
}

TEST_F(ProfileRoutesTest, OneProfileAtATime) {
  expect_error(post("/stop_profile"), 409, "no profile is being taken");
  EXPECT_EQ(post("/start_profile").status, 200);
  expect_error(post("/start_profile"), 409, "a profile is being taken");
  EXPECT_EQ(post("/stop_profile").status, 200);
  expect_error(post("/stop_profile"), 409, "no profile is being taken");
}

TEST_F(ProfileRoutesTest, FilesDoNotCollide) {
  std::set<std::string> files;
  for (int i = 0; i < 5; ++i) {
    files.insert(Json::parse(post("/start_profile").body).at("file").get<std::string>());
    EXPECT_EQ(post("/stop_profile").status, 200);
  }
  EXPECT_EQ(files.size(), 5u);
  EXPECT_EQ(num_files(), 5u);
}

TEST_F(ProfileRoutesTest, BodiesOfLoadToolsStartAProfile) {
  for (const char* body :
       {"", "  ", "{}", R"({"detail":null})", R"({"model":"m","prompt":[1,2],"max_tokens":5,"stream":true})",
        R"({"activities":["CPU","GPU"],"num_steps":null,"profile_by_stage":false})"}) {
    EXPECT_EQ(post("/start_profile", body).status, 200) << body;
    EXPECT_EQ(post("/stop_profile", body).status, 200) << body;
  }
}

TEST_F(ProfileRoutesTest, RefusesBodiesItCannotFollow) {
  expect_error(post("/start_profile", R"({"detail":"kernel"})"), 400, "\"op\" or \"layer\"", "detail");
  expect_error(post("/start_profile", R"({"detail":1})"), 400, "detail", "detail");
  expect_error(post("/start_profile", R"({"file":"/etc/passwd"})"), 400, "file: not supported", "file");
  expect_error(post("/start_profile", R"({"output_dir":"/tmp"})"), 400, "output_dir: ", "output_dir");
  expect_error(post("/start_profile", R"({"num_steps":0})"), 400, "num_steps: ", "num_steps");
  expect_error(post("/start_profile", R"({"start_step":-1})"), 400, "start_step: ", "start_step");
  expect_error(post("/start_profile", R"({"activities":"GPU"})"), 400, "activities: ", "activities");
  EXPECT_EQ(post("/start_profile", "[]").status, 400);
  EXPECT_EQ(post("/start_profile", "{").status, 400);
  EXPECT_EQ(num_files(), 0u);
  EXPECT_EQ(post("/start_profile").status, 200) << "a refusal leaves nothing behind";
}

TEST_F(ProfileRoutesTest, AFolderThatCannotBeWrittenIsAClearError) {
  const std::filesystem::path missing = directory_.path() / "missing";
  serve(missing);
  expect_error(post("/start_profile"), 500, missing.string());
  complete(3);
  std::filesystem::create_directory(missing);
  EXPECT_EQ(post("/start_profile").status, 200) << "the next one works";
}

TEST_F(ProfileRoutesTest, AFileThatCannotGrowIsAnErrorAndNoRequestIsLost) {
  const std::string file = Json::parse(post("/start_profile").body).at("file");
  {
    const FileSizeLimit limit(512);  // less than the header, as on a full disk
    complete(3);
    expect_error(post("/stop_profile"), 500, file + " holds 0 steps, 3 could not be written");
  }
  EXPECT_EQ(post("/start_profile").status, 200) << "the next one works";
  EXPECT_EQ(post("/stop_profile").status, 200);
}

TEST_F(ProfileRoutesTest, AProfileThatStillRunsIsClosedAtShutdown) {
  const std::string path = Json::parse(post("/start_profile").body).at("file");
  complete(8);
  end();
  const ProfileFile file = read_profile(path);
  EXPECT_TRUE(file.note.empty());
  EXPECT_EQ(file.steps.size(), 8u);
}

}  // namespace
}  // namespace minfer
