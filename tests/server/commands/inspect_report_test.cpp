#include "server/commands/inspect_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/commands/commands.h"
#include "tests/support/models/gguf_builder.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class InspectReport : public ::testing::Test {
 protected:
  std::vector<std::byte> bytes_ = test::small_gguf().build();
  GgufFile file_ = GgufFile::from_memory(bytes_, "small.gguf");
};

TEST_F(InspectReport, TableShowsMetadataTensorsAndTotals) {
  const std::string table = inspect_table(file_, true);
  EXPECT_THAT(table, HasSubstr("small.gguf: GGUF version 3, "));
  EXPECT_THAT(table, HasSubstr("metadata: 16 keys\n"));
  EXPECT_THAT(table, HasSubstr("  general.architecture  string  llama\n"));
  EXPECT_THAT(table, HasSubstr("  a.strings             array   [string x 3] <unk>, , </s>\n"));
  EXPECT_THAT(table, HasSubstr("tensors: 3\n"));
  EXPECT_THAT(table, HasSubstr("  token_embd.weight    q8_0  [3, 32]      102\n"));
  EXPECT_THAT(table, HasSubstr("  blk.0.ffn_up.weight  f32   [2, 2, 4]     64\n"));
  EXPECT_THAT(table, HasSubstr("  output_norm.weight   bf16  [5]           10\n"));
  EXPECT_THAT(table, HasSubstr("  q8_0        1          96    102            8.50\n"));
  EXPECT_THAT(table, HasSubstr("  all         3         117    176           12.03\n"));
}

TEST_F(InspectReport, TensorsCanBeLeftOut) {
  const std::string table = inspect_table(file_, false);
  EXPECT_THAT(table, Not(HasSubstr("token_embd.weight")));
  EXPECT_THAT(table, HasSubstr("all         3         117    176"));
  EXPECT_FALSE(inspect_json(file_, false).contains("tensors"));
}

TEST_F(InspectReport, JsonHoldsTheSame) {
  const auto report = inspect_json(file_, true);
  EXPECT_EQ(report["file"], "small.gguf");
  EXPECT_EQ(report["version"], 3);
  EXPECT_EQ(report["file_bytes"], bytes_.size());
  const auto& metadata = report["metadata"];
  EXPECT_EQ(metadata.size(), 16U);
  EXPECT_EQ(metadata["general.architecture"].dump(), R"({"type":"string","value":"llama"})");
  EXPECT_EQ(metadata["a.i8"].dump(), R"({"type":"i8","value":-8})");
  EXPECT_EQ(metadata["a.f32"].dump(), R"({"type":"f32","value":0.5})");
  EXPECT_EQ(metadata["a.bool"].dump(), R"({"type":"bool","value":true})");
  EXPECT_EQ(metadata["a.ints"]["value"].dump(), R"({"element_type":"i32","count":3,"first":[1,-2,3]})");
  EXPECT_EQ(report["tensors"][1].dump(),
            R"({"name":"blk.0.ffn_up.weight","type":"f32","shape":[2,2,4],"bytes":64})");
  EXPECT_EQ(report["totals"]["all"].dump(), R"({"tensors":3,"parameters":117,"bytes":176})");
}

TEST(Inspect, NamesChatTemplates) {
  test::GgufBuilder builder = test::small_gguf();
  builder.add("tokenizer.chat_template", "{{ messages }}")
      .add("tokenizer.chat_template.rag", "{{ documents }}")
      .add("tokenizer.chat_template.tool_use", "{{ tools }}")
      .add("tokenizer.chat_templates", std::vector<std::string>{"tool_use", "rag"});
  const auto bytes = builder.build();
  const GgufFile file = GgufFile::from_memory(bytes, "templates");
  EXPECT_THAT(inspect_table(file, false),
              HasSubstr("\nchat templates: default, rag (not used), tool_use (when a request has tools)\n"));
  EXPECT_EQ(inspect_json(file, false)["chat_templates"].dump(), R"(["default","rag","tool_use"])");
  const auto without = test::small_gguf().build();
  EXPECT_THAT(inspect_table(GgufFile::from_memory(without, "none"), false), Not(HasSubstr("chat templates")));
}

TEST(Inspect, SaysWhatAGpuConverts) {
  test::GgufBuilder builder = test::small_gguf();
  builder.tensor("blk.0.attn_q.weight", DType::q5_0, {32, 2});
  builder.tensor("blk.0.ffn_up_exps.weight", DType::q5_0, {32, 3, 2});
  const std::vector<std::byte> bytes = builder.build();
  const GgufFile file = GgufFile::from_memory(bytes, "small.gguf");
  EXPECT_THAT(inspect_table(file, false),
              HasSubstr("on a GPU experts of q5_0 are converted to q8_0 at load: 132 bytes become 8704\n"));
  EXPECT_THAT(inspect_table(file, false), Not(HasSubstr("experts of q8_0")));
  const auto totals = inspect_json(file, false)["totals"];
  EXPECT_EQ(totals["q5_0"]["cuda_expert_type"], "q8_0");
  EXPECT_EQ(totals["q5_0"]["bytes"], 44 + 132);
  EXPECT_EQ(totals["q5_0"]["cuda_bytes"], 16 * (176 + 2 * 272));  // its own tiles, and those of q8_0
  EXPECT_FALSE(totals["bf16"].contains("cuda_expert_type"));
  EXPECT_FALSE(totals["q5_0"].contains("cuda_type"));
}

TEST(Inspect, SaysWhatAGpuConvertsOfTypesWithAGrid) {
  test::GgufBuilder builder;
  builder.tensor("blk.0.attn_q.weight", DType::iq2_xs, {256, 16});
  builder.tensor("blk.0.ffn_up_exps.weight", DType::iq2_xs, {256, 16, 2});
  const std::vector<std::byte> bytes = builder.build();
  const GgufFile file = GgufFile::from_memory(bytes, "small.gguf");
  EXPECT_THAT(
      inspect_table(file, false),
      HasSubstr("on a GPU iq2_xs is converted to lut4 at load: 1184 bytes become 2304\n"
                "on a GPU experts of iq2_xs are converted to lut4 at load: 2368 bytes become 4608\n"));
  const auto totals = inspect_json(file, false)["totals"];
  EXPECT_EQ(totals["iq2_xs"]["cuda_type"], "lut4");
  EXPECT_EQ(totals["iq2_xs"]["cuda_expert_type"], "lut4");
}

TEST(Inspect, VocabularyHasNoTensors) {
  const auto bytes = test::GgufBuilder().add("tokenizer.ggml.model", "llama").build();
  const GgufFile file = GgufFile::from_memory(bytes, "vocabulary");
  EXPECT_THAT(inspect_table(file, true), HasSubstr("no tensors: a vocabulary"));
  EXPECT_EQ(inspect_json(file, true)["tensors"].size(), 0U);
}

TEST(Inspect, LongArraysAreShortenedInJson) {
  const auto bytes = test::GgufBuilder().add("a", std::vector<uint8_t>(1000, 7)).build();
  const auto value = inspect_json(GgufFile::from_memory(bytes, "long"), true)["metadata"]["a"]["value"];
  EXPECT_EQ(value["count"], 1000);
  EXPECT_EQ(value["first"].size(), 8U);
}

TEST(Inspect, LargestUnsignedIntegerIsShown) {
  const auto bytes = test::GgufBuilder().add("big", ~uint64_t{0}).build();
  const GgufFile file = GgufFile::from_memory(bytes, "big");
  EXPECT_THAT(inspect_table(file, true), HasSubstr("18446744073709551615"));
  EXPECT_EQ(inspect_json(file, true)["metadata"]["big"]["value"].dump(), "18446744073709551615");
}

TEST(Inspect, ControlCharactersNeverReachTheTerminal) {
  const auto bytes =
      test::GgufBuilder().add("k\x1b[2J", "v\x1b[2J\xff").tensor("t\a", DType::f32, {1}).build();
  const GgufFile file = GgufFile::from_memory(bytes, "hostile");
  const std::string table = inspect_table(file, true);
  EXPECT_THAT(table, HasSubstr("k\\u{1b}[2J"));
  EXPECT_THAT(table, HasSubstr("t\\u{7}"));
  EXPECT_THAT(table, Not(HasSubstr("\x1b")));
  EXPECT_THAT(table, Not(HasSubstr("\a")));
}

class InspectCommand : public ::testing::Test {
 protected:
  InspectCommand() { add_inspect_command(app_); }
  std::string run(const std::string& arguments) {
    ::testing::internal::CaptureStdout();
    try {
      app_.parse("inspect " + arguments);
    } catch (...) {
      ::testing::internal::GetCapturedStdout();
      throw;
    }
    return ::testing::internal::GetCapturedStdout();
  }

  CLI::App app_;
  test::TemporaryDirectory dir_;
  std::string path_ = (dir_.path() / "m.gguf").string();
};

TEST_F(InspectCommand, PrintsEitherFormat) {
  test::small_gguf().write(path_);
  EXPECT_THAT(run(path_), HasSubstr("token_embd.weight"));
  EXPECT_THAT(run("--no-tensors " + path_), Not(HasSubstr("token_embd.weight")));
  EXPECT_EQ(nlohmann::json::parse(run("-o json " + path_))["totals"]["all"]["tensors"], 3);
}

TEST_F(InspectCommand, JsonStaysValidForStringsThatAreNotText) {
  test::GgufBuilder().add("k\xff", "v\xff").write(path_);
  EXPECT_EQ(nlohmann::json::parse(run("-o json " + path_))["metadata"].size(), 1U);
}

TEST_F(InspectCommand, ErrorsAreThrown) {
  EXPECT_THROW(run(path_), FileError);
  EXPECT_THROW(run("-o yaml " + path_), CLI::ParseError);
  EXPECT_THROW(run("--no-such-option"), CLI::ParseError);
}

}  // namespace
}  // namespace minfer
