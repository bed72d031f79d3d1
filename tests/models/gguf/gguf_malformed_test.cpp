// Files with one error each: refused with a FileError that names the file and the error.
#include <ctime>
#include <functional>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/gguf/gguf.h"
#include "tests/support/models/gguf_builder.h"
#include "tests/support/models/gguf_walk.h"

namespace minfer {
namespace {

using test::ByteWriter;
using test::GgufBuilder;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();
constexpr uint32_t kF32 = 0;  // type numbers of tensors
constexpr uint32_t kF16 = 1;

struct Malformed {
  std::string name;
  std::function<void(GgufBuilder&)> spoil;  ///< changes an empty file
  std::string expected;                     ///< part of the message
};

void PrintTo(const Malformed& malformed, std::ostream* out) {
  *out << malformed.name;
}

GgufBuilder::TensorRecord record(std::string name, std::vector<uint64_t> dims, uint32_t type = kF32,
                                 size_t data_bytes = 32) {
  return {std::move(name), std::move(dims), type, {}, {}, std::vector<std::byte>(data_bytes)};
}

void raw_array(GgufBuilder& file, std::string_view key, uint32_t element_type, uint64_t count) {
  ByteWriter value;
  value.put(element_type);
  value.put(count);
  file.raw_key(key, static_cast<uint32_t>(GgufType::array), value.bytes());
}

void raw_string(GgufBuilder& file, std::string_view key, uint64_t stated_bytes) {
  ByteWriter value;
  value.put(stated_bytes);
  file.raw_key(key, static_cast<uint32_t>(GgufType::string), value.bytes());
}

std::vector<Malformed> header_cases() {
  return {
      {"MagicOfAnotherFormat", [](auto& f) { f.with_magic = 0x47475546; },
       "magic number 0x47475546, expected"},
      {"Version0", [](auto& f) { f.with_version = 0; }, "GGUF version 0, expected 2 or 3"},
      {"Version1", [](auto& f) { f.with_version = 1; }, "GGUF version 1, expected 2 or 3"},
      {"VersionOfTheFuture", [](auto& f) { f.with_version = 4; }, "GGUF version 4, expected 2 or 3"},
      {"BigEndian", [](auto& f) { f.with_version = 0x03000000; }, "a big-endian GGUF file"},
      {"TensorCountHuge", [](auto& f) { f.with_num_tensors = kHuge; },
       "18446744073709551615 tensors, expected"},
      {"TensorCountBeyondTheFile", [](auto& f) { f.with_num_tensors = 1000; },
       "the list of tensors has 1000 items"},
      {"KeyCountHuge", [](auto& f) { f.with_num_keys = kHuge; },
       "18446744073709551615 metadata keys, expected"},
      {"KeyCountBeyondTheFile", [](auto& f) { f.with_num_keys = 1000; }, "the metadata has 1000 items"},
  };
}

std::vector<Malformed> key_cases() {
  const auto raw = [](uint32_t type, size_t bytes) {
    return [=](GgufBuilder& f) { f.raw_key("k", type, std::vector<std::byte>(bytes, std::byte{2})); };
  };
  return {
      {"KeyLengthHuge",
       [](auto& f) {
         f.with_num_keys = 2;
         ByteWriter next_key;  // follows the value of the first key
         next_key.put(uint8_t{1});
         next_key.put(kHuge);
         next_key.put(kHuge);
         f.raw_key("k", static_cast<uint32_t>(GgufType::u8), next_key.bytes());
       },
       "a metadata key needs 18446744073709551615 bytes"},
      {"KeyEmpty", [](auto& f) { f.add("", uint64_t{1}); }, "has 0 bytes, expected 1 to 65535"},
      {"KeyTooLong", [](auto& f) { f.add(std::string(65536, 'k'), uint8_t{1}); },
       "has 65536 bytes, expected 1 to"},
      {"KeyTwice", [](auto& f) { f.add("k", uint8_t{1}).add("j", true).add("k", 1.0F); },
       "key 'k' occurs twice"},
      {"ValueTypeUnknown", raw(13, 8), "key 'k': value type 13, expected 0 to 12"},
      {"ValueTypeHuge", raw(0xffffffff, 8), "key 'k': value type 4294967295"},
      {"ValueTruncated", raw(10, 7),
       "truncated: k has 1 items of at least 8 bytes each at offset 37, but 7 bytes are left"},
      {"BoolOfAnotherValue", raw(7, 1), "key 'k': bool of value 2, expected 0 or 1"},
      {"StringLengthHuge", [](auto& f) { raw_string(f, "k", kHuge); }, "k needs 18446744073709551615 bytes"},
      {"StringOneByteTooLong", [](auto& f) { raw_string(f, "k", 1); }, "k needs 1 bytes"},
      {"ArrayTypeUnknown", [](auto& f) { raw_array(f, "k", 99, 0); }, "key 'k': value type 99"},
      {"ArrayOfArrays", [](auto& f) { raw_array(f, "k", 9, 1); }, "key 'k': array of arrays"},
      {"ArrayCountHuge", [](auto& f) { raw_array(f, "k", 4, kHuge); },
       "key 'k': array of 18446744073709551615 elements"},
      {"ArrayWhoseBytesWrap", [](auto& f) { raw_array(f, "k", 10, uint64_t{1} << 61); },
       "key 'k': array of 23058430092"},
      {"ArrayBeyondTheFile", [](auto& f) { raw_array(f, "k", 4, 2000000); },
       "k has 2000000 items of at least 4 bytes"},
      {"StringsBeyondTheFile", [](auto& f) { raw_array(f, "k", 8, 2000000); },
       "k has 2000000 items of at least 8 bytes"},
      {"BoolsBeyondTheFile", [](auto& f) { raw_array(f, "k", 7, 2000000); },
       "k has 2000000 items of at least 1 bytes"},
      {"BoolArrayOfAnotherValue",
       [](auto& f) {
         ByteWriter value;
         value.put(uint32_t{7});
         value.put(uint64_t{3});
         for (const int byte : {0, 1, 255})
           value.put(static_cast<uint8_t>(byte));
         f.raw_key("k", 9, value.bytes());
       },
       "key 'k': bool of value 255"},
      {"TerminalEscapesInAKey", [](auto& f) { f.add("\x1b[2J", uint8_t{1}).add("\x1b[2J", uint8_t{1}); },
       "key '\\u{1b}[2J' occurs twice"},
  };
}

std::vector<Malformed> alignment_cases() {
  const auto aligned = [](auto value) { return [=](GgufBuilder& f) { f.add("general.alignment", value); }; };
  return {
      {"AlignmentOfTypeI32", aligned(int32_t{32}), "key 'general.alignment': type i32, expected u32"},
      {"AlignmentOfTypeString", aligned("32"), "key 'general.alignment': type string, expected u32"},
      {"AlignmentOfTypeArray", aligned(std::vector<uint32_t>{32}),
       "'general.alignment': type array of u32, expected u32"},
      {"AlignmentZero", aligned(uint32_t{0}), "key 'general.alignment': 0, expected a power of two"},
      {"AlignmentOne", aligned(uint32_t{1}),
       "key 'general.alignment': 1, expected a power of two of at least 8"},
      {"Alignment13", aligned(uint32_t{13}), "key 'general.alignment': 13, expected a power of two"},
      {"AlignmentBeyondTheFile",
       [](auto& f) { f.add("general.alignment", uint32_t{1} << 31).raw_tensor(record("t", {8})); },
       "tensor t: 32 bytes at offset 0 of the data, beyond the end of the file"},
      {"OffsetsOfASmallerAlignment",
       [](auto& f) {
         f.with_alignment = 8;
         f.tensor("a", DType::f32, {2}).tensor("b", DType::f32, {2});
       },
       "tensor b: offset 8, expected a multiple of the alignment 32"},
      {"OffsetsOfALargerAlignment",
       [](auto& f) {
         f.add("general.alignment", uint32_t{64});
         f.tensor("a", DType::f32, {2}).tensor("b", DType::f32, {2});
       },
       "tensor b: offset 32, expected a multiple of the alignment 64"},
  };
}

std::vector<Malformed> tensor_cases() {
  const auto tensor = [](std::vector<uint64_t> dims, uint32_t type = kF32) {
    return [=](GgufBuilder& f) { f.raw_tensor(record("t", dims, type)); };
  };
  const auto num_dims = [](uint32_t stated, std::vector<uint64_t> dims) {
    return [=](GgufBuilder& f) {
      f.raw_tensor(record("t", dims));
      auto spoiled = record("u", dims);
      spoiled.num_dims = stated;
      f.raw_tensor(spoiled);
    };
  };
  return {
      {"NameTooLong", [](auto& f) { f.raw_tensor(record(std::string(65, 't'), {8})); },
       "has 65 bytes, expected 1 to 64"},
      {"NameEmpty", [](auto& f) { f.raw_tensor(record("", {8})); }, "has 0 bytes, expected 1 to 64"},
      {"NameTwice", [](auto& f) { f.raw_tensor(record("t", {8})).raw_tensor(record("t", {8})); },
       "tensor t occurs twice"},
      {"NoDimensions", num_dims(0, {8}), "tensor u: 0 dimensions, expected 1 to 4"},
      {"FiveDimensions", num_dims(5, {1, 1, 1, 1, 1}), "tensor t: 5 dimensions, expected 1 to 4"},
      {"FourDimensions", tensor({1, 1, 1, 2}), "tensor t: shape [1, 1, 1, 2], expected at most 3 dimensions"},
      {"DimensionsHuge", num_dims(0xffffffff, {8}), "tensor u: 4294967295 dimensions"},
      {"DimensionZero", tensor({0, 4}), "tensor t: dimension 0 is 0, expected at least 1"},
      {"RowsZero", tensor({8, 0}), "tensor t: dimension 1 is 0, expected at least 1"},
      {"DimensionNegative", tensor({kHuge}), "tensor t: dimension 0 is 18446744073709551615"},
      {"ElementsWrapToZero", tensor({uint64_t{1} << 32, uint64_t{1} << 32}),
       "tensor t: dimension 1 is 4294967296"},
      {"ElementsBeyondInt64", tensor({uint64_t{1} << 33, uint64_t{1} << 33}),
       "tensor t: dimension 1 is 8589934592"},
      {"BytesWrap", tensor({uint64_t{1} << 31, uint64_t{1} << 31}),
       "tensor t: 4611686018427387904 elements of type f32"},
      {"BytesWrapToASmallNumber", tensor({(uint64_t{1} << 62) + 8}),
       "elements of type f32, more than can be addressed"},
      {"TypeUnknown", tensor({32}, 99), "tensor t: type number 99, expected one of 0 (f32), 1 (f16)"},
      {"TypeRemoved", tensor({32}, 4), "tensor t: type number 4, expected one of"},
      {"TypeHuge", tensor({32}, 0xffffffff), "tensor t: type number 4294967295"},
      {"PartOfABlock", tensor({33}, 8),
       "tensor t: rows of 33 elements, expected a multiple of 32 for type q8_0"},
      {"PartOfABlockOfMxfp4", tensor({48, 2}, 39),
       "tensor t: rows of 48 elements, expected a multiple of 32 for type mxfp4"},
      {"RowsOfPartsOfABlock", tensor({128, 2}, 12),
       "tensor t: rows of 128 elements, expected a multiple of 256"},
  };
}

std::vector<Malformed> data_cases() {
  const auto at = [](uint64_t offset, std::vector<uint64_t> dims = {8}) {
    return [=](GgufBuilder& f) {
      auto spoiled = record("t", dims);
      spoiled.offset = offset;
      f.raw_tensor(spoiled);
    };
  };
  return {
      {"OffsetHuge", at(kHuge),
       "tensor t: offset 18446744073709551615, expected a multiple of the alignment 32"},
      {"OffsetAndSizeWrap", at(kHuge - 31),
       "tensor t: 32 bytes at offset 18446744073709551584 of the data, beyond"},
      {"OffsetAndStartWrap", at(kHuge - 63),
       "tensor t: 32 bytes at offset 18446744073709551552 of the data, beyond"},
      {"OffsetBeyondTheFile", at(32),
       "tensor t: 32 bytes at offset 32 of the data, beyond the end of the file"},
      {"SizeBeyondTheFile", at(0, {9}),
       "tensor t: 36 bytes at offset 0 of the data, beyond the end of the file"},
      {"Mxfp4BeyondTheFile",
       [](auto& f) {
         auto short_of_one = record("t", {64, 3}, 39, 3 * 34 - 1);
         f.raw_tensor(short_of_one);
       },
       "tensor t: 102 bytes at offset 0 of the data, beyond the end of the file"},
      {"SizesThatWrapTogether",
       [](auto& f) {
         for (const char* name : {"t", "u"})
           f.raw_tensor(record(name, {(uint64_t{1} << 63) - 64}, kF16, 0));
       },
       "tensor t: 18446744073709551488 bytes at offset 0 of the data, beyond the end of the file"},
      {"SizesWhoseSumWraps",
       [](auto& f) {
         for (const uint64_t offset : {uint64_t{0}, (uint64_t{1} << 63)}) {
           auto half = record(offset == 0 ? "t" : "u", {uint64_t{1} << 61}, 0, 32);
           half.offset = offset;
           f.raw_tensor(half);
         }
       },
       "tensor t: 9223372036854775808 bytes at offset 0 of the data, beyond the end of the file"},
      {"TensorsOverlap",
       [](auto& f) {
         auto second = record("u", {8});
         second.offset = 0;
         f.raw_tensor(record("t", {8})).raw_tensor(second);
       },
       "tensor u: offset 0, expected at least 32, where the tensor before it ends"},
      {"NoData", [](auto& f) { f.raw_tensor(record("t", {8}, kF32, 0)); },
       "tensor t: 32 bytes at offset 0 of the data"},
  };
}

class GgufMalformed : public ::testing::TestWithParam<Malformed> {};

TEST_P(GgufMalformed, IsRefusedByName) {
  GgufBuilder builder;
  GetParam().spoil(builder);
  const std::vector<std::byte> bytes = builder.build();
  try {
    GgufFile::from_memory(bytes, "bad.gguf");
    FAIL() << "opened";
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), StartsWith("bad.gguf: "));
    EXPECT_THAT(error.what(), HasSubstr(GetParam().expected));
  }
}

const auto kNameOf = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Header, GgufMalformed, ::testing::ValuesIn(header_cases()), kNameOf);
INSTANTIATE_TEST_SUITE_P(Key, GgufMalformed, ::testing::ValuesIn(key_cases()), kNameOf);
INSTANTIATE_TEST_SUITE_P(Alignment, GgufMalformed, ::testing::ValuesIn(alignment_cases()), kNameOf);
INSTANTIATE_TEST_SUITE_P(Tensor, GgufMalformed, ::testing::ValuesIn(tensor_cases()), kNameOf);
INSTANTIATE_TEST_SUITE_P(Data, GgufMalformed, ::testing::ValuesIn(data_cases()), kNameOf);

TEST(GgufMalformedFiles, EveryPrefixOfAFileIsRefused) {
  const std::vector<std::byte> whole = test::small_gguf().build();
  ASSERT_NO_THROW(GgufFile::from_memory(whole, "whole"));
  const std::clock_t start = std::clock();  // processor time: other work of the machine causes no failure
  for (size_t length = 0; length < whole.size(); ++length) {
    // A separate copy, so that a sanitizer sees a read beyond the prefix.
    const std::vector<std::byte> prefix(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_THROW(GgufFile::from_memory(prefix, "prefix"), FileError) << length << " bytes";
  }
  EXPECT_LT(std::clock() - start, CLOCKS_PER_SEC);
}

TEST(GgufMalformedFiles, EveryChangeOfAByteIsRefusedOrReadable) {
  std::vector<std::byte> bytes = test::small_gguf().build();
  int refused = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      const std::byte original = bytes[at];
      bytes[at] ^= static_cast<std::byte>(flip);
      try {
        test::read_everything(GgufFile::from_memory(bytes, "flipped"));
      } catch (const FileError&) {
        ++refused;
      }
      bytes[at] = original;
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(GgufMalformedFiles, MisalignedMemoryIsRefused) {
  std::vector<std::byte> bytes = test::small_gguf().build();
  bytes.insert(bytes.begin(), std::byte{0});
  EXPECT_THROW(GgufFile::from_memory(std::span(bytes).subspan(1), "odd"), Error);
}

}  // namespace
}  // namespace minfer
