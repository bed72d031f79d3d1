#include "models/gguf/nearest_name.h"

#include <fstream>

#include <gmock/gmock.h>

#include "models/decoder/weights/model_source.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::vector<std::string> kNames{"temperature", "top-k", "top-p", "min-p", "seed", "stop"};

TEST(NearestNameTest, FindsWhatASlipOfTheKeyboardMissed) {
  EXPECT_THAT(nearest_names("temperture", kNames), ElementsAre("temperature"));    // missing
  EXPECT_THAT(nearest_names("temperrature", kNames), ElementsAre("temperature"));  // too many
  EXPECT_THAT(nearest_names("sede", kNames), ElementsAre("seed"));                 // swapped
  EXPECT_THAT(nearest_names("TEMPERATURE", kNames), ElementsAre("temperature"));
  EXPECT_THAT(nearest_names("temp", kNames), ElementsAre("temperature"));  // begins with it
  EXPECT_THAT(nearest_names("top-q", kNames), ElementsAre("top-k", "top-p"));
  EXPECT_THAT(nearest_names("banana", kNames), IsEmpty());
  EXPECT_THAT(nearest_names("", kNames), IsEmpty());
  EXPECT_THAT(nearest_names("x", {}), IsEmpty());
}

TEST(NearestNameTest, TheNearestIsFirstAndThreeAreEnough) {
  const std::vector<std::string> names{"model-4.gguf", "model-33.gguf", "modell-3.gguf", "model-2.gguf",
                                       "model-1.gguf"};
  EXPECT_THAT(nearest_names("model-3.gguf", names), testing::SizeIs(3));
  EXPECT_EQ(nearest_names("modell-3.ggu", names).front(), "modell-3.gguf");
}

TEST(NearestNameTest, AsksAQuestion) {
  EXPECT_EQ(did_you_mean("top-q", kNames), "; did you mean \"top-k\" or \"top-p\"?");
  EXPECT_EQ(did_you_mean("banana", kNames), "");
  const std::vector<std::string> hostile{"top\x1b[31m"};
  EXPECT_THAT(did_you_mean("top", hostile), Not(HasSubstr("\x1b")));
}

class NearPathTest : public testing::Test {
 protected:
  NearPathTest() {
    std::filesystem::create_directory(dir_.path() / "models");
    std::ofstream(dir_.path() / "models" / "llama.gguf") << "x";
  }
  std::string path(const std::string& name) const { return (dir_.path() / name).string(); }

  test::TemporaryDirectory dir_;
};

TEST_F(NearPathTest, LooksIntoTheFolder) {
  const std::string answer = "; did you mean \"" + path("models/llama.gguf") + "\"?";
  EXPECT_EQ(did_you_mean_path(path("models/lama.gguf")), answer);
  EXPECT_EQ(did_you_mean_path(path("models/llama")), answer);
  EXPECT_EQ(did_you_mean_path(path("models/qwen.gguf")), "");
  EXPECT_EQ(did_you_mean_path(path("modles/llama.gguf")), "; did you mean \"" + path("models") + "\"?");
  EXPECT_EQ(did_you_mean_path(path("models/llama.gguf")), "");
}

TEST_F(NearPathTest, AModelThatIsNotThereSaysWhatIs) {
  const auto message = [](const std::string& spec) {
    try {
      open_model(spec);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(
      message(path("models/lamma.gguf")),
      path("models/lamma.gguf") + ": no such file; did you mean \"" + path("models/llama.gguf") + "\"?");
  EXPECT_THAT(message("synthetic:lama-3.1-8b"), HasSubstr("did you mean \"llama-3.1-8b\""));
  EXPECT_THAT(message("synthetic:tiny:q4k_m"), HasSubstr("did you mean \"q4_k_m\""));
  EXPECT_THAT(message("sinthetic:tiny"), HasSubstr("did you mean \"synthetic:tiny\"?"));
  EXPECT_THAT(message("nothing:like-it"), Not(HasSubstr("did you mean")));
}

}  // namespace
}  // namespace minfer
