// The contents of well-formed GGUF files: values, arrays, tensors, versions, split models.
#include "models/gguf/gguf.h"

#include <array>
#include <cstring>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/models/fixtures.h"
#include "tests/support/models/gguf_builder.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

using test::GgufBuilder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class GgufValues : public ::testing::Test {
 protected:
  std::vector<std::byte> bytes_ = test::small_gguf().build();
  GgufFile file_ = GgufFile::from_memory(bytes_, "small");
};

TEST_F(GgufValues, HeaderIsRead) {
  EXPECT_EQ(file_.name(), "small");
  EXPECT_EQ(file_.version(), 3U);
  EXPECT_EQ(file_.file_bytes(), bytes_.size());
  EXPECT_EQ(file_.metadata().size(), 16U);
}

TEST_F(GgufValues, IntegersOfAnyWidthAndSign) {
  EXPECT_EQ(file_.get_int("a.u8"), 8);
  EXPECT_EQ(file_.get_int("a.i8"), -8);
  EXPECT_EQ(file_.get_int("a.u16"), 16);
  EXPECT_EQ(file_.get_int("a.i16"), -16);
  EXPECT_EQ(file_.get_int("a.u32"), 32);
  EXPECT_EQ(file_.get_int("a.i32"), -32);
  EXPECT_EQ(file_.get_int("a.u64"), 64);
  EXPECT_EQ(file_.get_int("a.i64"), -64);
  EXPECT_EQ(file_.require_int("a.u8"), 8);
}

TEST_F(GgufValues, OtherScalars) {
  EXPECT_EQ(file_.get_float("a.f32"), 0.5);
  EXPECT_EQ(file_.require_float("a.f64"), 0.25);
  EXPECT_EQ(file_.get_bool("a.bool"), true);
  EXPECT_EQ(file_.get_string("general.architecture"), "llama");
  EXPECT_EQ(file_.require_string("general.architecture"), "llama");
}

TEST_F(GgufValues, Arrays) {
  EXPECT_THAT(file_.get_strings("a.strings"), ElementsAre("<unk>", "", "</s>"));
  EXPECT_THAT(file_.get_ints("a.ints"), ElementsAre(1, -2, 3));
  EXPECT_THAT(file_.get_floats("a.floats"), ElementsAre(1.5F, -2.5F));
}

TEST_F(GgufValues, AbsentKeys) {
  EXPECT_FALSE(file_.has("absent"));
  EXPECT_EQ(file_.get_int("absent"), std::nullopt);
  EXPECT_EQ(file_.get_float("absent"), std::nullopt);
  EXPECT_EQ(file_.get_bool("absent"), std::nullopt);
  EXPECT_EQ(file_.get_string("absent"), std::nullopt);
  EXPECT_THAT(file_.get_strings("absent"), IsEmpty());
  EXPECT_THAT(file_.get_ints("absent"), IsEmpty());
  EXPECT_THAT(file_.get_floats("absent"), IsEmpty());
  const std::string message = "small: key 'absent' is missing";
  EXPECT_EQ(test::refusal_of<FileError>([&] { file_.require_int("absent"); }), message);
  EXPECT_EQ(test::refusal_of<FileError>([&] { file_.require_float("absent"); }), message);
  EXPECT_EQ(test::refusal_of<FileError>([&] { file_.require_string("absent"); }), message);
  EXPECT_EQ(test::refusal_of<FileError>([&] { file_.describe("absent"); }), message);
}

TEST_F(GgufValues, EveryGetterRefusesEveryOtherType) {
  const std::vector<std::string_view> integers{"a.u8",  "a.i8",  "a.u16", "a.i16",
                                               "a.u32", "a.i32", "a.u64", "a.i64"};
  for (const GgufFile::Entry& entry : file_.metadata()) {
    const std::string_view key = entry.key;
    const bool is_array = entry.type == GgufType::array;
    const bool is_float = entry.element_type == GgufType::f32 || entry.element_type == GgufType::f64;
    const bool is_string = entry.element_type == GgufType::string;
    const bool is_bool = entry.element_type == GgufType::boolean;
    const bool is_int = !is_float && !is_string && !is_bool;
    const auto expect = [&](bool right_type, const auto& get) {
      const std::string message = test::refusal_of<FileError>(get);
      if (right_type) {
        EXPECT_EQ(message, "") << key;
      } else {
        EXPECT_THAT(message, HasSubstr(fmt::format("small: key '{}': type ", key)));
      }
    };
    expect(!is_array && is_int, [&] { file_.get_int(key); });
    expect(!is_array && is_float, [&] { file_.get_float(key); });
    expect(!is_array && is_bool, [&] { file_.get_bool(key); });
    expect(!is_array && is_string, [&] { file_.get_string(key); });
    expect(is_array && is_string, [&] { file_.get_strings(key); });
    expect(is_array && (is_int || is_bool), [&] { file_.get_ints(key); });
    expect(is_array && is_float, [&] { file_.get_floats(key); });
  }
}

TEST(Gguf, IntegerBeyondTheGetterIsRefused) {
  const auto bytes = GgufBuilder().add("big", uint64_t{1} << 63).add("fits", (uint64_t{1} << 63) - 1).build();
  const GgufFile file = GgufFile::from_memory(bytes, "f");
  EXPECT_EQ(file.get_int("fits"), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(test::refusal_of<FileError>([&] { file.get_int("big"); }),
            "f: key 'big': value 9223372036854775808, expected at most 9223372036854775807");
}

TEST_F(GgufValues, DescribeIsShortAndSafeForTerminals) {
  EXPECT_EQ(file_.describe("a.i8"), "-8");
  EXPECT_EQ(file_.describe("a.u64"), "64");
  EXPECT_EQ(file_.describe("a.bool"), "true");
  EXPECT_EQ(file_.describe("a.f32"), "0.5");
  EXPECT_EQ(file_.describe("general.architecture"), "llama");
  EXPECT_EQ(file_.describe("a.ints"), "[i32 x 3] 1, -2, 3");
  const auto bytes = GgufBuilder()
                         .add("long", std::string(1000, 'x'))
                         .add("escape", "a\x1b[31m\n\xff")
                         .add("many", std::vector<float>(9, 1e-5F))
                         .build();
  const GgufFile file = GgufFile::from_memory(bytes, "f");
  EXPECT_EQ(file.describe("long"), std::string(80, 'x') + "...");
  EXPECT_EQ(file.describe("escape"), "a\\u{1b}[31m\\n\\xff");
  EXPECT_EQ(file.describe("many"), "[f32 x 9] 1e-05, 1e-05, 1e-05, 1e-05, ...");
}

TEST_F(GgufValues, TensorsHaveShapesAndPointToTheirData) {
  ASSERT_EQ(file_.tensors().size(), 3U);
  const HostTensor* embedding = file_.find_tensor("token_embd.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding, &file_.tensors()[0]);
  EXPECT_EQ(embedding->dtype, DType::q8_0);
  EXPECT_EQ(embedding->cols, 32);
  EXPECT_EQ(embedding->rows, 3);
  EXPECT_EQ(embedding->count, 1);
  const HostTensor* experts = file_.find_tensor("blk.0.ffn_up.weight");
  ASSERT_NE(experts, nullptr);
  EXPECT_EQ(experts->cols, 4);
  EXPECT_EQ(experts->rows, 2);
  EXPECT_EQ(experts->count, 2);
  EXPECT_EQ(file_.find_tensor("absent"), nullptr);
  for (const HostTensor& tensor : file_.tensors()) {
    const auto* data = static_cast<const uint8_t*>(tensor.data);
    for (size_t i = 0; i < tensor.bytes(); ++i)
      ASSERT_EQ(data[i], static_cast<uint8_t>(i)) << tensor.name;
  }
}

TEST(Gguf, EveryTensorTypeIsRead) {
  GgufBuilder builder;
  for (const DTypeTraits& type : all_dtypes())
    builder.tensor(type.name, type.dtype, {256, 2});
  const auto bytes = builder.build();
  const GgufFile file = GgufFile::from_memory(bytes, "types");
  for (const DTypeTraits& type : all_dtypes()) {
    const HostTensor* tensor = file.find_tensor(type.name);
    ASSERT_NE(tensor, nullptr) << type.name;
    EXPECT_EQ(tensor->dtype, type.dtype);
    EXPECT_EQ(tensor->bytes(), 2 * 256 / type.block_elements * type.block_bytes);
  }
}

TEST(Gguf, VersionTwoIsReadAsVersionThree) {
  GgufBuilder builder = test::small_gguf();
  builder.with_version = 2;
  const auto bytes = builder.build();
  const GgufFile file = GgufFile::from_memory(bytes, "v2");
  EXPECT_EQ(file.version(), 2U);
  EXPECT_EQ(file.tensors().size(), 3U);
}

TEST(Gguf, CustomAlignmentMovesTheData) {
  for (const uint32_t alignment : {8U, 64U, 4096U}) {
    GgufBuilder builder;
    builder.add("general.alignment", alignment).tensor("a", DType::f32, {3}).tensor("b", DType::f32, {5});
    builder.with_alignment = alignment;
    const auto bytes = builder.build();
    const GgufFile file = GgufFile::from_memory(bytes, "aligned");
    const auto* a = static_cast<const std::byte*>(file.find_tensor("a")->data);
    const auto* b = static_cast<const std::byte*>(file.find_tensor("b")->data);
    EXPECT_EQ((a - bytes.data()) % alignment, 0);
    EXPECT_EQ((b - bytes.data()) % alignment, 0);
    EXPECT_EQ(b[19], std::byte{19});
  }
}

TEST(Gguf, VocabularyOnlyAndEmptyFilesOpen) {
  const auto vocabulary =
      GgufBuilder().add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"}).build();
  EXPECT_THAT(GgufFile::from_memory(vocabulary, "v").tensors(), IsEmpty());
  const auto empty = GgufBuilder().build();
  EXPECT_THAT(GgufFile::from_memory(empty, "e").metadata(), IsEmpty());
}

TEST(Gguf, ViewsStayValidWhenTheFileMoves) {
  const test::TemporaryDirectory dir;
  test::small_gguf().write(dir.path() / "m.gguf");
  GgufFile first = GgufFile::open(dir.path() / "m.gguf");
  const std::string_view architecture = first.require_string("general.architecture");
  const void* data = first.tensors()[0].data;
  const GgufFile second = std::move(first);
  EXPECT_EQ(architecture, "llama");
  EXPECT_EQ(second.tensors()[0].data, data);
  EXPECT_EQ(second.require_string("general.architecture").data(), architecture.data());
  second.check_intact();
}

TEST(GgufFixtures, EveryGoldenModelAndVocabularyOpens) {
  const auto dir = test::fixtures_dir();
  if (!dir) GTEST_SKIP() << "no fixtures";
  int opened = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(*dir)) {
    if (entry.path().extension() != ".gguf") continue;
    const GgufFile file = GgufFile::open(entry.path());
    EXPECT_EQ(file.version(), 3U) << file.name();
    EXPECT_EQ(file.file_bytes(), entry.file_size());
    EXPECT_FALSE(file.require_string("general.architecture").empty());
    EXPECT_FALSE(file.get_strings("tokenizer.ggml.tokens").empty()) << file.name();
    const bool is_model = entry.path().parent_path().filename() == "golden";
    EXPECT_EQ(file.find_tensor("token_embd.weight") != nullptr, is_model) << file.name();
    ++opened;
  }
  EXPECT_GE(opened, 11);
}

}  // namespace
}  // namespace minfer
