#include "models/gguf.h"

#include <gtest/gtest.h>

#include "tests/support/fixtures.h"

namespace minfer {
namespace {

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
