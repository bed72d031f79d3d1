#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <zlib.h>

#include "kernels/base/error.h"
#include "profiling/chrome_trace/chrome_trace.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

std::string bytes_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string decompressed(const std::filesystem::path& path) {
  const gzFile file = gzopen(path.c_str(), "rb");
  std::string text(1u << 22, '\0');
  const int length = gzread(file, text.data(), static_cast<unsigned>(text.size()));
  EXPECT_GE(length, 0);
  EXPECT_EQ(gzdirect(file), 0) << "is not compressed";
  gzclose(file);
  text.resize(static_cast<size_t>(std::max(length, 0)));
  return text;
}

TEST(TraceOutputTest, TheSuffixSaysWhetherItIsCompressed) {
  const test::TemporaryDirectory directory;
  std::string whole;
  for (const char* name : {"trace.json", "trace.json.gz"}) {
    TraceOutput output(directory.path() / name);
    whole.clear();
    for (int i = 0; i < 100'000; ++i) {
      const std::string piece = "{\"event\":" + std::to_string(i) + "}\n";
      output.write(piece);
      whole += piece;
    }
    output.close();
  }
  EXPECT_EQ(bytes_of(directory.path() / "trace.json"), whole);
  const std::string compressed = bytes_of(directory.path() / "trace.json.gz");
  EXPECT_EQ(compressed.substr(0, 2), "\x1f\x8b");
  EXPECT_LT(compressed.size(), whole.size() / 4);
  EXPECT_EQ(decompressed(directory.path() / "trace.json.gz"), whole);
}

TEST(TraceOutputTest, WhatCannotBeOpenedIsNamed) {
  const test::TemporaryDirectory directory;
  try {
    TraceOutput output(directory.path() / "no" / "trace.json");
    FAIL() << "there is no such folder";
  } catch (const FileError& error) {
    EXPECT_NE(std::string(error.what()).find("trace.json: cannot open for writing: No such file"),
              std::string::npos)
        << error.what();
  }
}

TEST(TraceOutputTest, AFullDiskIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  EXPECT_THROW(
      {
        TraceOutput output("/dev/full");
        for (int i = 0; i < 1'000; ++i)
          output.write(std::string(1'000, 'x'));
        output.close();
      },
      FileError);
}

}  // namespace
}  // namespace minfer
