// A model file that is replaced while its model runs.
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/engine/copying_backend.h"
#include "tests/support/engine/engine_run.h"
#include "tests/support/models/tiny_model.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

class ReplacedFileTest : public testing::Test {
 protected:
  ReplacedFileTest() { test::tiny_model().builder().write(path_); }

  std::unique_ptr<Engine> make_engine(std::unique_ptr<Backend> backend) const {
    EngineOptions options;
    options.num_blocks = 16;
    options.threads = 1;
    return std::make_unique<Engine>(open_model(path_.string()), options, LoadProgress(), std::move(backend));
  }

  /// What `cp other.gguf model.gguf` does first.
  void truncate() const { std::filesystem::resize_file(path_, 100); }

  /// True if this process has the file mapped or open.
  bool file_is_held() const {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
      if (line.ends_with(path_.string())) return true;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      if (std::filesystem::read_symlink(entry.path(), gone) == path_) return true;
    }
    return false;
  }

  test::TemporaryDirectory dir_;
  std::filesystem::path path_ = dir_.path() / "model.gguf";
};

const Request kRequest = test::greedy_request("a", {3, 4, 5, 6}, 8);

TEST_F(ReplacedFileTest, IsNoLossToABackendThatCopiedTheWeights) {
  const std::vector<TokenId> expected = test::answer_of(*make_engine(nullptr), kRequest).tokens;
  const auto engine = make_engine(std::make_unique<test::CopyingBackend>());
  EXPECT_FALSE(file_is_held());
  truncate();
  EXPECT_EQ(test::answer_of(*engine, kRequest).tokens, expected);

  const ModelSource& model = engine->model();
  EXPECT_EQ(model.name(), path_.string());
  ASSERT_NE(model.find_tensor("output_norm.weight"), nullptr);
  EXPECT_EQ(model.find_tensor("output_norm.weight")->cols, 32);
  EXPECT_EQ(model.find_tensor("output_norm.weight")->data, nullptr);
  EXPECT_EQ(model.find_tensor("none"), nullptr);
  EXPECT_THROW(model.make_tokenizer(), std::logic_error);
}

TEST_F(ReplacedFileTest, IsAnErrorToABackendThatReadsItInPlace) {
  const auto engine = make_engine(make_cpu_backend(1));
  EXPECT_TRUE(file_is_held());
  truncate();
  EXPECT_THROW(test::answer_of(*engine, kRequest), FileError);
}

TEST(ReleasedModelTest, AModelWithoutAFileLetsGoOfItsMemory) {
  const auto model = open_model("synthetic:tiny:f32");
  ASSERT_NE(model->tensors().front().data, nullptr);
  model->release_data();
  EXPECT_EQ(model->tensors().front().data, nullptr);
  EXPECT_NE(model->find_tensor("output_norm.weight"), nullptr);
}

}  // namespace
}  // namespace minfer
