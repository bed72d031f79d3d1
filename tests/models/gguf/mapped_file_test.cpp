#include "models/gguf/mapped_file.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/error.h"
#include "models/gguf/gguf.h"
#include "tests/support/models/gguf_builder.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

using ::testing::HasSubstr;

class MappedFileTest : public ::testing::Test {
 protected:
  static constexpr size_t kPages = 64;
  const size_t page_bytes_ = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t bytes_ = kPages * page_bytes_;

  MappedFileTest() { test::write_bytes(path_, std::vector<std::byte>(bytes_, std::byte{7})); }

  static std::string error_of(const auto& action) {
    try {
      action();
    } catch (const FileError& error) {
      return error.what();
    }
    return "";
  }
  static uint64_t sum(std::span<const std::byte> bytes) {
    uint64_t total = 0;
    for (const std::byte byte : bytes)
      total += std::to_integer<uint64_t>(byte);
    return total;
  }

  test::TemporaryDirectory dir_;
  std::filesystem::path path_ = dir_.path() / "file";
};

TEST_F(MappedFileTest, ReadsTheFile) {
  const MappedFile file(path_);
  EXPECT_EQ(file.bytes().size(), bytes_);
  EXPECT_EQ(sum(file.bytes()), 7 * bytes_);
  EXPECT_EQ(error_of([&] { file.check_intact(); }), "");
}

TEST_F(MappedFileTest, WhatIsNotAFileIsRefused) {
  EXPECT_THAT(error_of([&] { MappedFile{dir_.path() / "absent"}; }), HasSubstr("No such file"));
  EXPECT_THAT(error_of([&] { MappedFile{dir_.path()}; }), HasSubstr("not a regular file"));
  const auto pipe = dir_.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { MappedFile{pipe}; }), HasSubstr("not a regular file"));
  test::write_bytes(dir_.path() / "empty", {});
  EXPECT_THAT(error_of([&] { MappedFile{dir_.path() / "empty"}; }), HasSubstr("the file is empty"));
}

TEST_F(MappedFileTest, FileThatShrinksReadsAsZerosAndIsReported) {
  const MappedFile file(path_);
  const size_t kept = 3 * page_bytes_;
  std::filesystem::resize_file(path_, kept);
  EXPECT_EQ(sum(file.bytes()), 7 * kept);
  EXPECT_EQ(error_of([&] { file.check_intact(); }),
            fmt::format("{}: the file shrank while it was in use: {} bytes, expected {}", path_.string(),
                        kept, bytes_));
}

TEST_F(MappedFileTest, ShrinkingWithinTheLastPageIsReported) {
  const MappedFile file(path_);
  std::filesystem::resize_file(path_, bytes_ - 1);
  EXPECT_EQ(sum(file.bytes()), 7 * (bytes_ - 1));  // no signal here: the kernel zeroes the rest of the page
  EXPECT_THAT(error_of([&] { file.check_intact(); }), HasSubstr("shrank"));
}

TEST_F(MappedFileTest, FileThatShrankAndGrewAgainIsReportedOnceReadBetween) {
  const MappedFile file(path_);
  std::filesystem::resize_file(path_, page_bytes_);
  EXPECT_EQ(file.bytes().back(), std::byte{0});
  std::filesystem::resize_file(path_, bytes_);
  EXPECT_THAT(error_of([&] { file.check_intact(); }), HasSubstr("could not be read"));
}

TEST_F(MappedFileTest, OtherMappingsOfTheFileAreTheirOwn) {
  const MappedFile untouched(path_);
  test::write_bytes(dir_.path() / "other", std::vector<std::byte>(bytes_, std::byte{1}));
  const MappedFile other(dir_.path() / "other");
  std::filesystem::resize_file(dir_.path() / "other", page_bytes_);
  EXPECT_EQ(sum(other.bytes()), page_bytes_);
  EXPECT_EQ(sum(untouched.bytes()), 7 * bytes_);
  EXPECT_EQ(error_of([&] { untouched.check_intact(); }), "");
}

TEST_F(MappedFileTest, ManyThreadsMayFaultAtOnce) {
  const MappedFile file(path_);
  std::filesystem::resize_file(path_, page_bytes_);
  std::atomic<uint64_t> total = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&] { total += sum(file.bytes()); });
  }
  EXPECT_EQ(total, 8 * 7 * page_bytes_);
}

TEST_F(MappedFileTest, GuardsAreGivenBack) {
  for (size_t i = 0; i < MappedFile::kMaxFiles + 10; ++i)
    MappedFile{path_};
  const MappedFile file(path_);
  std::filesystem::resize_file(path_, page_bytes_);
  EXPECT_EQ(sum(file.bytes()), 7 * page_bytes_);
}

using MappedFileDeathTest = MappedFileTest;

TEST_F(MappedFileDeathTest, BusErrorElsewhereStillEndsTheProcess) {
  const MappedFile guarded(path_);
  EXPECT_DEATH(
      {
        std::FILE* file = std::fopen(path_.c_str(), "r");
        void* address = ::mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, ::fileno(file), 0);
        std::filesystem::resize_file(path_, page_bytes_);
        static_cast<void>(*(static_cast<volatile char*>(address) + bytes_ - 1));
      },
      "");
}

TEST(GgufShrinks, WeightsOfAFileThatShrinksAreAnErrorNotACrash) {
  const test::TemporaryDirectory dir;
  const auto path = dir.path() / "model.gguf";
  test::GgufBuilder builder;
  builder.add("general.architecture", "llama").tensor("w", DType::f32, {1024, 64});
  builder.write(path);
  const GgufFile file = GgufFile::open(path);
  file.check_intact();
  const HostTensor& tensor = file.tensors()[0];
  std::filesystem::resize_file(path, 4096);
  const auto* data = static_cast<const std::byte*>(tensor.data);
  EXPECT_EQ(data[tensor.bytes() - 1], std::byte{0});
  EXPECT_THROW(file.check_intact(), FileError);
}

TEST(GgufShrinks, OpeningWhileTheFileShrinksAndGrowsNeverCrashes) {
  const test::TemporaryDirectory dir;
  const auto path = dir.path() / "model.gguf";
  test::GgufBuilder builder;
  builder.add("tokenizer.ggml.tokens", std::vector<std::string>(20000, "token"));
  const std::vector<std::byte> bytes = builder.build();
  test::write_bytes(path, bytes);
  std::atomic<bool> done = false;
  std::jthread shrinker([&] {
    while (!done) {
      std::filesystem::resize_file(path, 4096);
      test::write_bytes(path, bytes);
    }
  });
  int refused = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (int i = 0; i < 300 || (refused == 0 && std::chrono::steady_clock::now() < deadline); ++i) {
    try {
      EXPECT_LE(GgufFile::open(path).get_strings("tokenizer.ggml.tokens").size(), 20000U);
    } catch (const FileError&) {
      ++refused;
    }
  }
  done = true;
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace minfer
