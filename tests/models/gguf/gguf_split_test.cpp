// Models in several files: NAME-00001-of-0000N.gguf.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/gguf/gguf.h"
#include "tests/support/models/gguf_builder.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

using test::GgufBuilder;
using ::testing::HasSubstr;

class GgufSplitTest : public ::testing::Test {
 protected:
  std::filesystem::path path(int part, int count = 3) const {
    return dir_.path() / fmt::format("model-{:05}-of-{:05}.gguf", part, count);
  }
  /// A part with one tensor; `index` counts from 0.
  static GgufBuilder part(uint16_t index, uint16_t count = 3) {
    GgufBuilder builder;
    builder.add("split.no", index).add("split.count", count).add("split.tensors.count", int32_t{count});
    if (index == 0) builder.add("general.architecture", "llama");
    builder.tensor(fmt::format("t{}", index), DType::f32, {index + uint64_t{1}});
    return builder;
  }
  void write_all() const {
    for (uint16_t i = 0; i < 3; ++i)
      part(i).write(path(i + 1));
  }
  std::string open_error(const std::filesystem::path& file) const {
    try {
      GgufFile::open(file);
    } catch (const FileError& error) {
      return error.what();
    }
    return "";
  }

  test::TemporaryDirectory dir_;
};

TEST_F(GgufSplitTest, TensorsOfAllPartsAreFound) {
  write_all();
  const GgufFile file = GgufFile::open(path(1));
  EXPECT_EQ(file.require_string("general.architecture"), "llama");
  ASSERT_EQ(file.tensors().size(), 3U);
  size_t bytes = 0;
  for (int i = 0; i < 3; ++i) {
    const HostTensor* tensor = file.find_tensor(fmt::format("t{}", i));
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor, &file.tensors()[static_cast<size_t>(i)]);
    EXPECT_EQ(tensor->cols, i + 1);
    EXPECT_EQ(static_cast<const uint8_t*>(tensor->data)[i * 4], i * 4);
    bytes += std::filesystem::file_size(path(i + 1));
  }
  EXPECT_EQ(file.file_bytes(), bytes);
}

TEST_F(GgufSplitTest, MissingPartIsNamed) {
  write_all();
  std::filesystem::remove(path(2));
  EXPECT_EQ(
      open_error(path(1)),
      fmt::format("part 2 of 3: {}: cannot open the file: No such file or directory", path(2).string()));
}

TEST_F(GgufSplitTest, AnotherPartThanTheFirstIsRefused) {
  write_all();
  EXPECT_THAT(open_error(path(2)), HasSubstr("part 2 of 3, expected the first part"));
}

TEST_F(GgufSplitTest, PartOfAnotherPlaceIsRefused) {
  write_all();
  part(1).write(path(3));
  EXPECT_THAT(open_error(path(1)),
              HasSubstr("part 2 of 3 by split.no and split.count, expected part 3 of 3"));
}

TEST_F(GgufSplitTest, PartOfAnotherSplitIsRefused) {
  write_all();
  part(1, 4).write(path(2));
  EXPECT_THAT(open_error(path(1)),
              HasSubstr("part 2 of 4 by split.no and split.count, expected part 2 of 3"));
}

TEST_F(GgufSplitTest, FirstFileOfAnotherNameIsRefused) {
  part(0).write(dir_.path() / "renamed.gguf");
  EXPECT_THAT(open_error(dir_.path() / "renamed.gguf"),
              HasSubstr("expected a name that ends in '-00001-of-00003.gguf'"));
}

TEST_F(GgufSplitTest, TensorOfTwoPartsIsRefused) {
  write_all();
  GgufBuilder twice;
  twice.add("split.no", uint16_t{2})
      .add("split.count", uint16_t{3})
      .tensor("t0", DType::f32, {1})
      .write(path(3));
  EXPECT_THAT(open_error(path(1)), HasSubstr("tensor t0 occurs twice"));
}

TEST_F(GgufSplitTest, WrongTensorCountIsRefused) {
  write_all();
  GgufBuilder more = part(2);
  more.tensor("extra", DType::f32, {1}).write(path(3));
  EXPECT_THAT(open_error(path(1)), HasSubstr("4 tensors in 3 parts, expected 3 from split.tensors.count"));
}

TEST_F(GgufSplitTest, MalformedPartIsNamed) {
  write_all();
  test::write_bytes(path(3), std::as_bytes(std::span("GGUF")));
  EXPECT_THAT(open_error(path(1)), HasSubstr(path(3).string() + ": truncated"));
}

TEST_F(GgufSplitTest, SplitKeysAreChecked) {
  const auto error_of = [&](GgufBuilder& builder) {
    builder.write(path(1));
    return open_error(path(1));
  };
  EXPECT_THAT(error_of(GgufBuilder().add("split.count", uint16_t{3})),
              HasSubstr("key 'split.no' is missing"));
  EXPECT_THAT(error_of(GgufBuilder().add("split.count", uint16_t{3}).add("split.no", uint16_t{3})),
              HasSubstr("key 'split.no': 3, expected 0 to 2"));
  EXPECT_THAT(error_of(GgufBuilder().add("split.count", int32_t{-1})),
              HasSubstr("key 'split.count': -1, expected 0 to 1000"));
  EXPECT_THAT(error_of(GgufBuilder().add("split.count", uint16_t{65535})),
              HasSubstr("key 'split.count': 65535"));
  EXPECT_THAT(error_of(GgufBuilder().add("split.count", "3")), HasSubstr("key 'split.count': type string"));
  EXPECT_EQ(error_of(GgufBuilder().add("split.count", uint16_t{0})), "");  // a model merged from its parts
}

TEST_F(GgufSplitTest, PartInMemoryIsRefused) {
  const auto bytes = part(0).build();
  EXPECT_THROW(GgufFile::from_memory(bytes, "m"), FileError);
}

}  // namespace
}  // namespace minfer
