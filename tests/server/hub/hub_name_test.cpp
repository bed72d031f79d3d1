#include "server/hub/hub_name.h"

#include <gmock/gmock.h>

#include "kernels/base/error.h"
#include "tests/support/refusal.h"

namespace minfer {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(HubNameTest, ReadsRepositoryAndQuantisation) {
  const HubName whole = HubName::parse("hf:bartowski/Meta-Llama-3.1_8B-GGUF:Q4_K_M");
  EXPECT_EQ(whole.repo, "bartowski/Meta-Llama-3.1_8B-GGUF");
  EXPECT_EQ(whole.quant, "Q4_K_M");
  EXPECT_EQ(whole.text(), "hf:bartowski/Meta-Llama-3.1_8B-GGUF:Q4_K_M");
  EXPECT_EQ(HubName::parse("hf:a/b").quant, "");
  EXPECT_EQ(HubName::parse("hf:a/b").text(), "hf:a/b");
}

TEST(HubNameTest, RefusesNamesThatNoHubHas) {
  const std::string long_name(97, 'a');
  for (const std::string& spec : {std::string("hf:"),         std::string("hf:a"),
                                  std::string("hf:/b"),       std::string("hf:a/"),
                                  std::string("hf:a/b/c"),    std::string("hf:../b"),
                                  std::string("hf:a/.."),     std::string("hf:a/b..c"),
                                  std::string("hf:a/b--c"),   std::string("hf:a--b/c"),
                                  std::string("hf:-a/b"),     std::string("hf:a/b-"),
                                  std::string("hf:a./b"),     std::string("hf:a/.b"),
                                  std::string("hf:a/b:"),     std::string("hf:a/b:Q4/../x"),
                                  std::string("hf:a/b?c"),    std::string("hf:a/b c"),
                                  std::string("hf:a\n/b"),    std::string("hf:a/b\n"),
                                  "hf:a/" + long_name,        "hf:" + long_name + "/b",
                                  "hf:a/b:" + long_name,      std::string("hf:a/\xc3\xa9"),
                                  std::string("hf:a/b\0c", 8)})
    EXPECT_THAT(test::refusal_of([&] { HubName::parse(spec); }), HasSubstr("hf:ORG/REPO[:QUANT]")) << spec;
}

std::vector<HubFile> files_of(const std::vector<std::string>& paths) {
  std::vector<HubFile> files;
  for (const std::string& path : paths)
    files.push_back({.path = path, .bytes = 1, .sha256 = "x"});
  return files;
}

std::vector<std::string> chosen(const std::vector<std::string>& paths, const std::string& spec) {
  std::vector<std::string> names;
  for (const HubFile& file : choose_files(files_of(paths), HubName::parse(spec), "the hub"))
    names.push_back(file.path);
  return names;
}

TEST(HubNameTest, ChoosesTheNamedQuantisationInAnyCase) {
  const std::vector<std::string> paths{"m-Q8_0.gguf",       "m.IQ4_XS.gguf", "m-Q4_K_M.gguf",
                                       "m-BF16.gguf",       "m-f16.gguf",    "m-UD-Q4_K_XL.gguf",
                                       "mmproj-m-F16.gguf", "Q2_K/m.gguf"};
  EXPECT_THAT(chosen(paths, "hf:a/b:q8_0"), ElementsAre("m-Q8_0.gguf"));
  EXPECT_THAT(chosen(paths, "hf:a/b:IQ4_xs"), ElementsAre("m.IQ4_XS.gguf"));
  EXPECT_THAT(chosen(paths, "hf:a/b:F16"), ElementsAre("m-f16.gguf"));  // neither BF16 nor the projector
  EXPECT_THAT(chosen(paths, "hf:a/b:UD-Q4_K_XL"), ElementsAre("m-UD-Q4_K_XL.gguf"));
  EXPECT_THAT(chosen(paths, "hf:a/b:Q4_K_XL"), ElementsAre("m-UD-Q4_K_XL.gguf"));
  EXPECT_THAT(chosen(paths, "hf:a/b:Q2_K"), ElementsAre("Q2_K/m.gguf"));
  const std::string refusal = test::refusal_of([&] { chosen(paths, "hf:a/b:Q4_K"); });
  EXPECT_THAT(refusal, AllOf(HasSubstr("hf:a/b:Q4_K"), HasSubstr("Q8_0"), HasSubstr("UD-Q4_K_XL"),
                             HasSubstr("the hub")));
}

TEST(HubNameTest, ChoosesADefault) {
  EXPECT_THAT(chosen({"m-Q8_0.gguf", "m-Q4_K_M.gguf"}, "hf:a/b"), ElementsAre("m-Q4_K_M.gguf"));
  EXPECT_THAT(chosen({"m-Q8_0.gguf", "m-F16.gguf"}, "hf:a/b"), ElementsAre("m-Q8_0.gguf"));
  EXPECT_THAT(
      chosen({"z.gguf", "imatrix.gguf", "mmproj-Q8_0.gguf", "mtp-m-Q8_0.gguf", "m.gguf", "a.txt"}, "hf:a/b"),
      ElementsAre("m.gguf"));
  EXPECT_THAT(test::refusal_of([] {
                chosen({"a.txt", "mmproj-F16.gguf"}, "hf:a/b");
              }),
              HasSubstr("no such GGUF file; there are: none"));
}

TEST(HubNameTest, TakesAllPartsOfASplitModel) {
  EXPECT_THAT(chosen({"Q4_K_M/m-Q4_K_M-00002-of-00003.gguf", "Q4_K_M/m-Q4_K_M-00001-of-00003.gguf",
                      "Q4_K_M/m-Q4_K_M-00003-of-00003.gguf", "m-Q8_0.gguf"},
                     "hf:a/b"),
              ElementsAre("Q4_K_M/m-Q4_K_M-00001-of-00003.gguf", "Q4_K_M/m-Q4_K_M-00002-of-00003.gguf",
                          "Q4_K_M/m-Q4_K_M-00003-of-00003.gguf"));
  EXPECT_THAT(test::refusal_of([] {
                chosen({"m-00001-of-00003.gguf", "m-00003-of-00003.gguf"}, "hf:a/b");
              }),
              HasSubstr("m-00002-of-00003.gguf"));
  EXPECT_THAT(test::refusal_of([] { chosen({"m-00002-of-00003.gguf"}, "hf:a/b"); }),
              HasSubstr("no such GGUF file; there are: none"));
}

TEST(HubNameTest, PathsStayInTheRepository) {
  for (const char* path :
       {"a.gguf", "Q4_K_M/a+b@1.gguf", "a..b.gguf", "...gguf", "a/b/c/.hidden.gguf", "..a/b.gguf"})
    EXPECT_EQ(chosen({path}, "hf:a/b"), std::vector<std::string>{path});
  const std::string folder = std::string(150, 'a') + "/",
                    folders = folder + folder + folder + folder + folder + folder;
  for (const std::string& path :
       {std::string("../a.gguf"), std::string("a/../b.gguf"), std::string("a/.././b.gguf"),
        std::string("./a.gguf"), std::string("a/./b.gguf"), std::string("/a.gguf"), std::string("//a.gguf"),
        std::string("a//b.gguf"), std::string("a\\b.gguf"), std::string("a\nb.gguf"),
        std::string("a\x1b[2Jb.gguf"), std::string("a\0b.gguf", 8), std::string("a b.gguf"),
        std::string("a%2fb.gguf"), std::string("a?b.gguf"), std::string("a#b.gguf"),
        std::string(201, 'a') + ".gguf", folders + folder + "a.gguf"})
    EXPECT_THAT(test::refusal_of([&] { chosen({path}, "hf:a/b"); }),
                AllOf(HasSubstr("inside the repository"), Not(HasSubstr("\x1b"))))
        << path;
}

TEST(HubNameTest, FindsTheQuantisationInAName) {
  EXPECT_EQ(quant_of("m-Q4_K_M.gguf"), "Q4_K_M");
  EXPECT_EQ(quant_of("x/Llama-3.1-8B.UD-IQ2_XXS.gguf"), "UD-IQ2_XXS");
  EXPECT_EQ(quant_of("m-bf16-00001-of-00002.gguf"), "bf16");
  EXPECT_EQ(quant_of("gpt-oss-20b-mxfp4.gguf"), "mxfp4");
  EXPECT_EQ(quant_of("model.gguf"), "model");
  EXPECT_THAT(quant_of("a\x1b[2Jb.gguf"), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace minfer
