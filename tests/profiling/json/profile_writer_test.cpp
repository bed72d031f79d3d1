#include "profiling/json/profile_writer.h"

#include <filesystem>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/error.h"
#include "profiling/json/json_reader.h"
#include "profiling/json/lines.h"
#include "tests/support/allocations.h"
#include "tests/support/profiling/sample_counters.h"
#include "tests/support/profiling/sample_profile.h"

namespace minfer {
namespace {

class ProfileWriterTest : public testing::Test {
 protected:
  ProfileWriterTest() { std::filesystem::create_directories(folder); }
  ~ProfileWriterTest() override { std::filesystem::remove_all(folder); }

  std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("minfer_profile_writer_" + std::to_string(getpid()));
  std::filesystem::path path = folder / "run.jsonl";
};

void consume_steps(ProfileWriter& writer, int64_t count) {
  for (int64_t step = 0; step < count; ++step)
    writer.consume(test::sample_record(step, 4, step % 2 == 0 ? 0 : 8));
}

/// Waits until the file holds that many steps. Returns false if that takes a minute.
bool wait_for_steps(const std::filesystem::path& path, size_t count) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::filesystem::file_size(path) == 0 || read_profile(path).steps.size() < count) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

TEST_F(ProfileWriterTest, WritesEveryStep) {
  ProfileWriter writer(path, test::sample_header());
  consume_steps(writer, 500);
  const ProfileWriter::Stats stats = writer.close();
  EXPECT_EQ(stats.written, 500u);
  EXPECT_EQ(stats.dropped, 0u);
  EXPECT_EQ(stats.error, "");
  const ProfileFile file = read_profile(path);
  EXPECT_TRUE(file.note.empty());
  ASSERT_EQ(file.steps.size(), 500u);
  for (size_t i = 0; i < 500; ++i)
    ASSERT_EQ(file.steps[i].step, static_cast<int64_t>(i));
  EXPECT_EQ(file.steps[7].requests, std::vector<std::string>{"request-0"});
  EXPECT_EQ(writer.close().written, 500u);  // the second call returns the same
}

TEST_F(ProfileWriterTest, WritesOnlyTheRangeAndItsLayers) {
  ProfileWriter writer(path, test::sample_header(ProfileDetail::layer),
                       {.first_step = 100, .last_step = 200});
  consume_steps(writer, 300);
  EXPECT_EQ(writer.close().written, 101u);
  const ProfileFile file = read_profile(path);
  ASSERT_EQ(file.steps.size(), 101u);
  EXPECT_EQ(file.steps.front().step, 100);
  EXPECT_EQ(file.steps.back().step, 200);
  EXPECT_FALSE(file.steps.front().layers.empty());
  // Step 101 is mixed: decode is charged the cost learnt from the steps before the range.
  const StepSummary& mixed = file.steps[1];
  ASSERT_EQ(mixed.phase(), StepPhase::mixed);
  EXPECT_GT(mixed.decode.us, 0.0);
}

TEST_F(ProfileWriterTest, WritesLinesOfOtherSchemasBetweenSteps) {
  ProfileWriter writer(path, test::sample_header());
  consume_steps(writer, 3);
  std::string line;
  append_line(line, test::sample_counters());
  writer.add_line(line);
  writer.add_line(line);
  EXPECT_EQ(writer.close().written, 3u);
  const ProfileFile file = read_profile(path);
  EXPECT_EQ(file.steps.size(), 3u);
  EXPECT_EQ(file.counters.size(), 2u);
}

TEST_F(ProfileWriterTest, LinesArriveWhileTheRunGoesOn) {
  ProfileWriter writer(path, test::sample_header());
  consume_steps(writer, 3);
  EXPECT_TRUE(wait_for_steps(path, 3));
}

TEST_F(ProfileWriterTest, AFullQueueDropsAndCounts) {
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int reader =
      ::open(path.c_str(), O_RDONLY | O_NONBLOCK);  // never reads: first the pipe fills, then the queue
  ASSERT_GE(reader, 0);
  int errors = 0;
  ProfileWriter writer(path, test::sample_header(),
                       {.queue_bytes = 1,
                        .close_timeout = std::chrono::milliseconds(50),
                        .on_error = [&](const std::string&) { ++errors; }});
  constexpr uint64_t kSteps = 2'000;
  consume_steps(writer, kSteps);  // ends although nobody reads
  const ProfileWriter::Stats stats = writer.close();
  EXPECT_GT(stats.dropped, 0u);
  EXPECT_EQ(stats.written + stats.dropped, kSteps);
  EXPECT_LE(errors, 1);
  close(reader);
}

TEST_F(ProfileWriterTest, AFullDiskIsReportedOnceAndDropsAreCounted) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  std::vector<std::string> errors;
  ProfileWriter writer("/dev/full", test::sample_header(),
                       {.on_error = [&](const std::string& error) { errors.push_back(error); }});
  consume_steps(writer, 100);
  const ProfileWriter::Stats stats = writer.close();
  EXPECT_EQ(stats.written, 0u);
  EXPECT_EQ(stats.dropped, 100u);
  EXPECT_EQ(stats.error, "profile file /dev/full: cannot write: No space left on device");
  EXPECT_EQ(errors, std::vector<std::string>{stats.error});
}

TEST_F(ProfileWriterTest, AClosedPipeDoesNotEndTheProcess) {
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  std::vector<std::string> errors;
  ProfileWriter writer(path, test::sample_header(),
                       {.on_error = [&](const std::string& error) { errors.push_back(error); }});
  close(reader);
  consume_steps(writer, 100);
  const ProfileWriter::Stats stats = writer.close();
  EXPECT_EQ(stats.written + stats.dropped, 100u);
  EXPECT_EQ(stats.error, "profile file " + path.string() + ": cannot write: Broken pipe");
  EXPECT_EQ(errors.size(), 1u);
}

TEST_F(ProfileWriterTest, ConsumingAllocatesNothing) {
  if (!test::counts_allocations()) GTEST_SKIP() << "a sanitizer counts the allocations";
  constexpr size_t kSlots = 16;  // the smallest number
  ProfileWriter writer(path, test::sample_header(), {.queue_bytes = 1});
  std::vector<StepRecord> records;
  for (size_t step = 0; step < 2 * kSlots; ++step)
    records.push_back(test::sample_record(static_cast<int64_t>(step), 4, 8));
  for (size_t step = 0; step < kSlots; ++step)  // every slot has held a request id
    writer.consume(records[step]);
  ASSERT_TRUE(wait_for_steps(path, kSlots));  // and is free again
  const uint64_t before = test::thread_allocations();
  for (size_t step = kSlots; step < 2 * kSlots; ++step)
    writer.consume(records[step]);
  EXPECT_EQ(test::thread_allocations(), before);
  EXPECT_EQ(writer.close().written, 2 * kSlots);
}

TEST_F(ProfileWriterTest, AFileThatCannotBeOpenedIsRefused) {
  EXPECT_THROW(ProfileWriter(folder / "missing" / "run.jsonl", test::sample_header()), FileError);
  EXPECT_THROW(ProfileWriter(folder, test::sample_header()), FileError);
}

}  // namespace
}  // namespace minfer
