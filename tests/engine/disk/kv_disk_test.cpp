// The prefix cache on disk, with an engine over a tiny model: what is written, found again, and given up.

#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/engine/drafted_run.h"
#include "tests/support/engine/engine_run.h"
#include "tests/support/engine/step_gate.h"
#include "tests/support/engine/tiny_engine.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/wait.h"

namespace minfer {
namespace {

namespace fs = std::filesystem;
using test::Answer;
using test::answer_of;
using test::Answers;
using test::make_tiny_engine;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int32_t kDiskBlock = 4;          // tokens
constexpr int32_t kDiskPromptTokens = 41;  // ten blocks, and a token to compute
constexpr std::chrono::minutes kLongPatience{2};

std::vector<TokenId> disk_prompt(TokenId first) {
  std::vector<TokenId> tokens;
  for (TokenId i = 0; i < kDiskPromptTokens; ++i)
    tokens.push_back(first + (7 * i) % 50);
  return tokens;
}

Request disk_request(const std::string& id, TokenId first, const std::string& salt = "") {
  Request request = test::greedy_request(id, disk_prompt(first), 6);
  request.sampling.logprobs = 2;
  request.cache_salt = salt;
  return request;
}

void expect_equal_answers(const Answer& found, const Answer& expected) {
  EXPECT_EQ(found.tokens, expected.tokens);
  EXPECT_TRUE(test::same_logprobs(found.logprobs, expected.logprobs));
}

/// Files of blocks, by their names.
std::set<fs::path> block_files(const fs::path& folder) {
  std::set<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().filename() != "lock") files.insert(entry.path());
  return files;
}

class KvDiskTest : public testing::Test {
 protected:
  EngineOptions options(int32_t num_blocks = 64) const {
    EngineOptions options = test::tiny_engine_options();
    options.block_size = kDiskBlock;
    options.max_model_len = 80;
    options.num_blocks = num_blocks;
    options.kv_disk.folder = folder_;
    return options;
  }
  /// Answers, then ends in order.
  Answer run_and_save(const Request& request) const {
    const auto engine = make_tiny_engine(options());
    Answer answer = answer_of(*engine, request);
    engine->save_kv_cache(kLongPatience);
    return answer;
  }
  /// Runs other prompts until nothing of earlier ones is in memory.
  static void evict_all(Engine& engine) {
    for (TokenId first = 200; first < 230; first += 10)
      answer_of(engine, disk_request(std::to_string(first), first));
  }
  /// Waits until one of the counts is at least that high.
  static void wait_until_counted(Engine& engine, int64_t DiskCounts::*which, int64_t count) {
    ASSERT_TRUE(test::wait_until([&] {
      engine.step();
      return engine.disk_counts()->*which >= count;
    })) << engine.disk_counts()->*which;
  }

  test::TemporaryDirectory directory_;
  const fs::path folder_ = directory_.path() / "kv";
};

TEST_F(KvDiskTest, AnEngineReadsTheBlocksOfTheOneBeforeIt) {
  Answer hit;
  {
    const auto engine = make_tiny_engine(options());
    answer_of(*engine, disk_request("computes", 10));
    hit = answer_of(*engine, disk_request("hits", 10));
    EXPECT_EQ(hit.last.cached_tokens, 40);
    engine->save_kv_cache(kLongPatience);
    EXPECT_EQ(block_files(folder_).size(), 11);  // of prompt and answer
    EXPECT_EQ(engine->disk_counts()->read, 0);
  }
  const auto engine = make_tiny_engine(options());
  const Answer read = answer_of(*engine, disk_request("reads", 10));
  expect_equal_answers(read, hit);
  EXPECT_EQ(read.last.cached_tokens, 40);
  EXPECT_EQ(engine->disk_counts()->read, 10);
  EXPECT_EQ(engine->disk_counts()->hit_tokens, 40);
  EXPECT_GT(engine->disk_counts()->read_ns, 0);
  engine->save_kv_cache(kLongPatience);
  EXPECT_EQ(engine->disk_counts()->written, 0);  // all are there
  // The next one is a hit in memory.
  expect_equal_answers(answer_of(*engine, disk_request("again", 10)), hit);
  EXPECT_EQ(engine->disk_counts()->read, 10);
  engine->scheduler().blocks().check({});
}

TEST_F(KvDiskTest, RecordsOfStepsHaveTheCounts) {
  run_and_save(disk_request("first", 10));
  const auto engine = make_tiny_engine(options(20));
  answer_of(*engine, disk_request("reads", 10));
  evict_all(*engine);
  DiskCounts sum;
  for (const StepRecord& record : engine->recorder().after(-1)) {
    sum.read += record.batch.disk.read;
    sum.hit_tokens += record.batch.disk.hit_tokens;
    sum.read_ns += record.batch.disk.read_ns;
  }
  EXPECT_EQ(sum.read, 10);
  EXPECT_EQ(sum.hit_tokens, 40);
  EXPECT_EQ(sum.read_ns, engine->disk_counts()->read_ns);
}

TEST_F(KvDiskTest, EvictedBlocksAreWrittenAndReadAgain) {
  const auto engine = make_tiny_engine(options(20));
  const Answer first = answer_of(*engine, disk_request("first", 10));
  evict_all(*engine);
  wait_until_counted(*engine, &DiskCounts::written, 11);  // the first one's: it was used least recently
  const Answer again = answer_of(*engine, disk_request("again", 10));
  expect_equal_answers(again, first);
  EXPECT_EQ(again.last.cached_tokens, 40);
  EXPECT_EQ(engine->disk_counts()->read, 10);
  EXPECT_EQ(engine->scheduler().blocks().num_live(), 0);
  engine->scheduler().blocks().check({});
}

TEST_F(KvDiskTest, SequencesThatReadTheSamePrefixTogetherAllGetIt) {
  const Answer first = run_and_save(disk_request("first", 10));
  const auto engine = make_tiny_engine(options());
  for (const char* id : {"a", "b", "c"})
    engine->submit(disk_request(id, 10));
  Answers answers;
  answers.run(*engine);
  for (const char* id : {"a", "b", "c"}) {
    expect_equal_answers(answers.at(id), first);
    EXPECT_EQ(answers.at(id).last.cached_tokens, 40);
  }
}

TEST_F(KvDiskTest, ASaltFindsItsOwnBlocksOnly) {
  run_and_save(disk_request("salted", 10, "tenant a"));
  const auto engine = make_tiny_engine(options());
  EXPECT_EQ(answer_of(*engine, disk_request("other", 10, "tenant b")).last.cached_tokens, 0);
  EXPECT_EQ(answer_of(*engine, disk_request("none", 10)).last.cached_tokens, 0);
  EXPECT_EQ(engine->disk_counts()->read, 0);
  EXPECT_EQ(answer_of(*engine, disk_request("same", 10, "tenant a")).last.cached_tokens, 40);
  EXPECT_EQ(engine->disk_counts()->read, 10);
}

TEST_F(KvDiskTest, FilesOfAnotherModelStayApartAndCount) {
  run_and_save(disk_request("first", 10));
  const size_t num_files = block_files(folder_).size();
  const int64_t file_bytes = static_cast<int64_t>(fs::file_size(*block_files(folder_).begin()));
  EngineOptions others = options();
  others.kv_cache_dtype = DType::bf16;  // other bytes for the same tokens
  {
    const auto engine = make_tiny_engine(others);
    EXPECT_EQ(answer_of(*engine, disk_request("computes", 10)).last.cached_tokens, 0);
    engine->save_kv_cache(kLongPatience);
  }
  EXPECT_EQ(block_files(folder_).size(), 2 * num_files);
  {
    const auto engine = make_tiny_engine(options());  // finds its own
    EXPECT_EQ(answer_of(*engine, disk_request("reads", 10)).last.cached_tokens, 40);
  }
  {
    Engine engine(open_model("synthetic:tiny:q8_0"), options());
    EXPECT_EQ(answer_of(engine, disk_request("other weights", 10)).last.cached_tokens, 0);
  }
  others.kv_disk.max_bytes = 3 * file_bytes;
  const auto engine = make_tiny_engine(others);
  int64_t bytes = 0;
  for (const fs::path& file : block_files(folder_))
    bytes += static_cast<int64_t>(fs::file_size(file));
  EXPECT_LE(bytes, others.kv_disk.max_bytes);
  EXPECT_GT(bytes, 0);
}

TEST_F(KvDiskTest, TheBoundHoldsAndTheBeginningOfTheNewestPrefixStays) {
  run_and_save(disk_request("first", 10));
  const auto file_bytes = static_cast<int64_t>(fs::file_size(*block_files(folder_).begin()));
  fs::remove_all(folder_);
  EngineOptions bounded = options();
  bounded.kv_disk.max_bytes = 4 * file_bytes + 1;
  {
    const auto engine = make_tiny_engine(bounded);
    answer_of(*engine, disk_request("older", 100));
    answer_of(*engine, disk_request("newer", 10));
    engine->save_kv_cache(kLongPatience);
    EXPECT_EQ(engine->disk_counts()->written, 4);
    EXPECT_GT(engine->disk_counts()->dropped, 0);
  }
  EXPECT_EQ(block_files(folder_).size(), 4);
  const auto engine = make_tiny_engine(bounded);
  EXPECT_EQ(answer_of(*engine, disk_request("older", 100)).last.cached_tokens, 0);
  EXPECT_EQ(answer_of(*engine, disk_request("newer", 10)).last.cached_tokens, 4 * kDiskBlock);
  bounded.kv_disk.folder = directory_.path() / "other";
  bounded.kv_disk.max_bytes = file_bytes - 1;
  EXPECT_THAT([&] { make_tiny_engine(bounded); }, ThrowsMessage<Error>(HasSubstr("kv-cache-disk")));
}

TEST_F(KvDiskTest, ReadBlocksAreUsedBlocks) {
  run_and_save(disk_request("first", 10));
  run_and_save(disk_request("second", 100));
  EngineOptions bounded = options();
  const std::set<fs::path> files = block_files(folder_);
  ASSERT_EQ(files.size(), 22);
  bounded.kv_disk.max_bytes = 10 * static_cast<int64_t>(fs::file_size(*files.begin()));
  {
    const auto engine = make_tiny_engine(options());
    answer_of(*engine, disk_request("first", 10));  // used later than the second, though written earlier
  }
  make_tiny_engine(bounded);
  const auto engine = make_tiny_engine(options());
  EXPECT_EQ(answer_of(*engine, disk_request("first", 10)).last.cached_tokens, 40);
}

TEST_F(KvDiskTest, ADamagedFileIsRemovedAndTheRestComputed) {
  const Answer first = run_and_save(disk_request("first", 10));
  const std::set<fs::path> files = block_files(folder_);
  const auto size = static_cast<int64_t>(fs::file_size(*files.begin()));
  for (const int64_t place :
       {int64_t{0}, int64_t{9}, int64_t{17}, int64_t{30}, int64_t{60}, int64_t{64}, size - 1}) {
    for (const fs::path& path : files) {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(place);
      const int byte = file.get();
      file.seekp(place);
      file.put(static_cast<char>(byte ^ 1));
    }
    const auto engine = make_tiny_engine(options());
    const Answer computed = answer_of(*engine, disk_request("computes", 10));
    expect_equal_answers(computed, first);
    EXPECT_EQ(computed.last.cached_tokens, 0) << place;
    EXPECT_EQ(engine->disk_counts()->read, 0) << place;
    wait_until_counted(*engine, &DiskCounts::lost, 10);
    if (HasFatalFailure()) return;
    engine->save_kv_cache(kLongPatience);
    EXPECT_EQ(engine->disk_counts()->written, 10) << place;
    EXPECT_EQ(block_files(folder_), files)
        << place;  // of the answer's block nobody knows yet that it is damaged
    fs::remove_all(folder_);
    run_and_save(disk_request("first", 10));
  }
}

TEST_F(KvDiskTest, ATruncatedFileAndOneThatIsGoneAreComputed) {
  const Answer first = run_and_save(disk_request("first", 10));
  for (const fs::path& path : block_files(folder_))
    fs::resize_file(path, 100);
  {
    const auto engine = make_tiny_engine(options());
    expect_equal_answers(answer_of(*engine, disk_request("computes", 10)), first);
    wait_until_counted(*engine, &DiskCounts::lost, 10);
    if (HasFatalFailure()) return;
    engine->save_kv_cache(kLongPatience);
  }
  const auto engine = make_tiny_engine(options());
  for (const fs::path& path : block_files(folder_))
    fs::remove(path);
  expect_equal_answers(answer_of(*engine, disk_request("again", 10)), first);
  EXPECT_EQ(engine->disk_counts()->read, 0);
}

TEST_F(KvDiskTest, AnEngineThatIsKilledLosesOnlyWhatItWasWriting) {
  EngineOptions killed = options();
  killed.kv_disk.before_file = [num_files = 0](bool is_read) mutable {
    if (!is_read && ++num_files == 4) raise(SIGKILL);
  };
  const pid_t child = fork();
  if (child == 0) {
    const auto engine = make_tiny_engine(killed);
    answer_of(*engine, disk_request("first", 10));
    engine->save_kv_cache(kLongPatience);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  const std::set<fs::path> files = block_files(folder_);
  ASSERT_EQ(files.size(), 3);
  const fs::path unfinished = files.begin()->string() + ".new";  // as if in the middle of a file
  std::ofstream(unfinished) << "half a block";
  const auto engine = make_tiny_engine(options());
  EXPECT_FALSE(fs::exists(unfinished));
  EXPECT_EQ(answer_of(*engine, disk_request("reads", 10)).last.cached_tokens, 3 * kDiskBlock);
}

TEST_F(KvDiskTest, AFullDiskDropsBlocks) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 200, .rlim_max = before.rlim_max};
  const auto engine = make_tiny_engine(options());
  const Answer first = answer_of(*engine, disk_request("first", 10));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  engine->save_kv_cache(kLongPatience);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(engine->disk_counts()->written, 0);
  EXPECT_EQ(engine->disk_counts()->dropped, 11);
  EXPECT_TRUE(block_files(folder_).empty());
  engine->save_kv_cache(kLongPatience);
  EXPECT_EQ(engine->disk_counts()->written, 11);
}

TEST_F(KvDiskTest, ASlowDiskDelaysOnlyWhoReadsFromIt) {
  run_and_save(disk_request("first", 10));
  test::StepGate gate;
  EngineOptions slow = options();
  slow.kv_disk.before_file = [&](bool is_read) {
    if (is_read) gate.pass();
  };
  const auto engine = make_tiny_engine(slow);
  engine->submit(disk_request("reads", 10));
  engine->submit(disk_request("cancelled", 10));
  engine->submit(disk_request("computes", 100));
  Answers answers;
  while (!answers.contains("computes") || !answers.at("computes").finished())
    answers.step(*engine);
  EXPECT_FALSE(answers.contains("reads"));
  engine->cancel("cancelled");
  answers.step(*engine);
  EXPECT_TRUE(answers.at("cancelled").finished());
  gate.open();
  answers.run(*engine);
  EXPECT_EQ(answers.at("reads").last.cached_tokens, 40);
  EXPECT_EQ(engine->scheduler().blocks().num_live(), 0);
  engine->scheduler().blocks().check({});
}

TEST_F(KvDiskTest, BlocksAreDroppedWhileTheDiskIsBehind) {
  test::StepGate gate;
  EngineOptions slow = options(20);
  slow.kv_disk.before_file = [&](bool is_read) {
    if (!is_read) gate.pass();
  };
  const auto engine = make_tiny_engine(slow);
  TokenId first = 0;
  while (engine->disk_counts()->dropped == 0) {
    Request next = disk_request(std::to_string(first), first);
    next.prompt.front() = first++ % 500;
    next.prompt[1] = first / 500;
    answer_of(*engine, next);
  }
  EXPECT_EQ(engine->disk_counts()->written, 0);
  gate.open();
  ASSERT_TRUE(test::wait_until([&] {
    engine->step();
    return engine->disk_counts()->written > 0;
  }));
}

TEST_F(KvDiskTest, NothingIsReadThatIsComputedFaster) {
  run_and_save(disk_request("first", 10));
  run_and_save(disk_request("second", 100));
  int64_t compute_ns = 0;
  EngineOptions slow = options();
  slow.kv_disk.before_file = [&](bool /*is_read*/) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(compute_ns));
  };
  const auto engine = make_tiny_engine(slow);
  const auto compute = [&](TokenId first) {
    const int64_t begin_ns = now_ns();
    answer_of(*engine, disk_request(std::to_string(first), first));
    compute_ns = std::max(compute_ns, now_ns() - begin_ns);
  };
  for (const TokenId first : {200, 300, 400})
    compute(first);
  EXPECT_EQ(answer_of(*engine, disk_request("tries", 10)).last.cached_tokens,
            40);  // the time of a read is not known
  EXPECT_EQ(answer_of(*engine, disk_request("computes", 100)).last.cached_tokens, 0);
  EXPECT_EQ(engine->disk_counts()->read, 10);
  EXPECT_EQ(engine->disk_counts()->lost, 0);
}

/// The keys by which a query chooses others are part of a block.
TEST_F(KvDiskTest, KeysOfIndexersAreKeptToo) {
  const std::string model = source_path("tests/golden/deepseek32.gguf");
  Answer first;
  {
    Engine engine(open_model(model), options());
    first = answer_of(engine, disk_request("computes", 10));
    engine.save_kv_cache(kLongPatience);
  }
  Engine engine(open_model(model), options());
  const Answer read = answer_of(engine, disk_request("reads", 10));
  EXPECT_EQ(read.last.cached_tokens, 40);
  EXPECT_EQ(read.tokens, first.tokens);
}

TEST_F(KvDiskTest, OneEngineUsesAFolder) {
  const auto engine = make_tiny_engine(options());
  EXPECT_THAT([&] { make_tiny_engine(options()); },
              ThrowsMessage<Error>(testing::AllOf(HasSubstr("kv-cache-dir"), HasSubstr(folder_.string()),
                                                  HasSubstr("another process uses it"))));
}

TEST_F(KvDiskTest, OnlyTheOwnerCanReadTheFiles) {
  run_and_save(disk_request("first", 10));
  const auto mode = [](const fs::path& path) { return fs::status(path).permissions(); };
  EXPECT_EQ(mode(folder_), fs::perms::owner_all);
  for (const fs::path& path : block_files(folder_)) {
    EXPECT_EQ(mode(path), fs::perms::owner_read | fs::perms::owner_write);
    EXPECT_EQ(mode(path.parent_path()), fs::perms::owner_all);
  }
}

TEST_F(KvDiskTest, WhatCannotBeKeptIsRefused) {
  EngineOptions ranks = options();
  ranks.tensor_parallel_size = 2;
  EXPECT_THAT([&] { make_tiny_engine(ranks); }, ThrowsMessage<Error>(HasSubstr("2 ranks")));
  EXPECT_THAT([&] { Engine(open_model("synthetic:tiny-hybrid:f32"), options()); },
              ThrowsMessage<Error>(HasSubstr("states of sequences")));
  EngineOptions windows = options();
  windows.max_model_len = 0;
  EXPECT_THAT([&] { Engine(open_model(source_path("tests/golden/gemma2.gguf")), windows); },
              ThrowsMessage<Error>(HasSubstr("layers with windows")));
  EngineOptions uncached = options();
  uncached.enable_prefix_caching = false;
  EXPECT_THAT([&] { make_tiny_engine(uncached); }, ThrowsMessage<Error>(HasSubstr("no prefix cache")));
  EngineOptions nowhere = options();
  nowhere.kv_disk.folder = directory_.path() / "not" / "there";
  EXPECT_THAT([&] { make_tiny_engine(nowhere); }, ThrowsMessage<Error>(HasSubstr("No such file")));
}

TEST_F(KvDiskTest, OtherFilesInTheFolderAreLeftAlone) {
  fs::create_directories(folder_ / "0123456789ab");
  const std::vector<fs::path> others{folder_ / "notes.txt", folder_ / "0123456789ab" / "notes.txt"};
  for (const fs::path& path : others)
    std::ofstream(path) << "mine";
  EngineOptions bounded = options();
  bounded.kv_disk.max_bytes = 64 << 10;
  make_tiny_engine(bounded);
  for (const fs::path& path : others)
    EXPECT_TRUE(fs::exists(path)) << path;
}

}  // namespace
}  // namespace minfer
