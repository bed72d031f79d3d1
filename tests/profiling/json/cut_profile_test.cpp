// A profile with every kind of line whose end is lost: the disk is full, nobody reads, the process is killed.
#include <csignal>
#include <fstream>
#include <sstream>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/base/error.h"
#include "profiling/report/report.h"
#include "tests/support/profiling/cuts.h"
#include "tests/support/profiling/report_of_file.h"
#include "tests/support/profiling/whole_profile.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

using test::num_lines;
using test::num_other_lines;
using test::read_cut_profile;
using test::write_whole_profile;

class CutProfileTest : public testing::Test {
 protected:
  ProfileHeader header() {
    launches_.push_back(std::make_unique<LaunchTable>());
    return test::whole_profile_header(*launches_.back());
  }
  /// The whole text of a profile of that many steps.
  std::string whole_text(int64_t steps) {
    ProfileWriter writer(path_, header());
    write_whole_profile(writer, steps);
    const ProfileWriter::Stats stats = writer.close();
    EXPECT_EQ(stats.written, static_cast<uint64_t>(steps));
    EXPECT_EQ(stats.dropped + stats.dropped_lines, 0u);
    std::stringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }

  test::TemporaryDirectory directory_;
  std::filesystem::path path_ = directory_.path() / "run.jsonl";
  std::vector<std::unique_ptr<LaunchTable>> launches_;
};

ProfileFile read_cut_text(const std::string& text) {
  std::istringstream stream(text);
  return read_profile(stream, "run.jsonl");
}

TEST_F(CutProfileTest, HoldsEveryKindOfLine) {
  const std::string text = whole_text(2);
  const ProfileFile file = read_cut_profile(path_);
  EXPECT_EQ(file.launches.size(), 3u);
  EXPECT_EQ(file.steps.size(), 2u);
  EXPECT_EQ(file.ranges.size(), 1u);
  EXPECT_EQ(file.traced.size(), 2u);
  EXPECT_EQ(file.kernels.size(), 10u);
  EXPECT_EQ(file.counters.size(), 1u);
  EXPECT_EQ(file.memory_at_end.used_bytes, 950);
  EXPECT_EQ(num_lines(file), 2 + num_other_lines(2));
}

TEST_F(CutProfileTest, EveryCutIsReadToItsLastWholeLine) {
  const std::string text = whole_text(1);
  size_t lines = 0;
  for (const size_t bytes : test::cuts_of(text)) {
    const std::string cut = text.substr(0, bytes);
    if (bytes > 0 && cut.back() == '\n') ++lines;
    if (lines == 0) {
      EXPECT_THROW(read_cut_text(cut), FileError) << bytes;
      continue;
    }
    const ProfileFile file = read_cut_text(cut);
    ASSERT_EQ(num_lines(file), lines) << bytes;
    ASSERT_EQ(file.note.empty(), cut.back() == '\n') << bytes;
    if (!file.steps.empty() && (file.note.empty() || bytes % 97 == 0)) {
      const std::string report = render_report(file, {});
      EXPECT_EQ(report.find("0 dropped before the last (after it: not known") == std::string::npos,
                file.note.empty())
          << report;
    }
    if (file.note.empty() && !file.steps.empty()) {
      EXPECT_FALSE(render_report(file, {}).empty()) << bytes;
      EXPECT_FALSE(render_report(file, {.format = ReportFormat::json}).empty()) << bytes;
    }
  }
  EXPECT_EQ(lines, 1 + num_other_lines(1));
}

TEST_F(CutProfileTest, AFullDeviceDropsAndCountsEveryLine) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  ProfileWriter writer("/dev/full", header());
  write_whole_profile(writer, 50);
  const ProfileWriter::Stats stats = writer.close();
  EXPECT_EQ(stats.written, 0u);
  EXPECT_EQ(stats.dropped, 50u);
  EXPECT_EQ(stats.dropped_lines, num_other_lines(50));
}

TEST_F(CutProfileTest, AFileThatMayNotGrowIsReadableAndTheRestCounted) {
  constexpr int64_t kSteps = 40;
  const size_t size = whole_text(kSteps).size();
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  for (size_t most = 4'000; most < size; most += size / 9) {
    SCOPED_TRACE(most);
    const rlimit limit{most, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ProfileWriter writer(path_, header());
    write_whole_profile(writer, kSteps);
    const ProfileWriter::Stats stats = writer.close();
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_EQ(stats.error, "profile file " + path_.string() + ": cannot write: File too large");
    EXPECT_EQ(std::filesystem::file_size(path_), most);
    const ProfileFile file = read_cut_profile(path_);
    EXPECT_EQ(stats.written + stats.dropped, static_cast<uint64_t>(kSteps));
    EXPECT_LE(stats.written, file.steps.size());
    EXPECT_GE(stats.dropped_lines + num_lines(file) - file.steps.size(), num_other_lines(kSteps));
  }
}

TEST_F(CutProfileTest, WhatAPipeTookBeforeItWasClosedIsReadable) {
  constexpr int64_t kSteps = 400;  // more than a pipe holds
  const std::filesystem::path pipe = directory_.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const size_t most : {5'000, 70'000, 200'000}) {
    SCOPED_TRACE(most);
    const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ASSERT_GE(reader, 0);
    ProfileWriter writer(pipe, header());
    ::fcntl(reader, F_SETFL, 0);
    write_whole_profile(writer, kSteps);
    std::string taken(most, '\0');
    for (size_t bytes = 0; bytes < most;) {
      const ssize_t more = ::read(reader, taken.data() + bytes, most - bytes);
      ASSERT_GT(more, 0);
      bytes += static_cast<size_t>(more);
    }
    ::close(reader);
    const ProfileWriter::Stats stats = writer.close();
    EXPECT_EQ(stats.written + stats.dropped, static_cast<uint64_t>(kSteps));
    EXPECT_GT(stats.dropped_lines, 0u);
    EXPECT_EQ(stats.error, "profile file " + pipe.string() + ": cannot write: Broken pipe");
    std::ofstream(path_, std::ios::binary) << taken;
    read_cut_profile(path_);
  }
}

TEST_F(CutProfileTest, MoreLinesThanWaitAreCounted) {
  const std::filesystem::path pipe = directory_.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);  // never reads
  ProfileWriter writer(pipe, header(), {.close_timeout = std::chrono::milliseconds(20)});
  const std::string line = "\"" + std::string(10'000, 'x') + "\"\n";
  for (int i = 0; i < 3'000; ++i)
    writer.add_line(line);
  EXPECT_GT(writer.close().dropped_lines, 1'900u) << "a thousand wait, and one write may be under way";
  ::close(reader);
}

/// Writes ranges until it is killed.
[[noreturn]] void write_until_killed(const std::filesystem::path& path) {
  LaunchTable launches;
  ProfileWriter writer(path, test::whole_profile_header(launches));
  for (;;) {
    write_whole_profile(writer, 5, false);
    ::usleep(500);
  }
}

TEST_F(CutProfileTest, AKilledProcessLeavesWholeLines) {
  for (const size_t least : {1u, 30'000u, 300'000u}) {
    SCOPED_TRACE(least);
    std::filesystem::remove(path_);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) write_until_killed(path_);
    std::error_code none;
    int status = 0;
    while (!(std::filesystem::exists(path_) && std::filesystem::file_size(path_, none) >= least)) {
      ASSERT_EQ(::waitpid(child, &status, WNOHANG), 0);
      ::usleep(1'000);
    }
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    read_cut_profile(path_);
  }
}

}  // namespace
}  // namespace minfer
