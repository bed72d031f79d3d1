// The model as the first argument, and the answers to a mistyped command line.
#include <fstream>

#include <gmock/gmock.h>

#include "models/decoder/weights/model_source.h"
#include "tests/support/server/command_line.h"

namespace minfer {
namespace {

using test::Outcome;
using testing::HasSubstr;
using testing::Not;

class ModelArgumentTest : public testing::Test {
 protected:
  ModelArgumentTest() {
    const std::span<const std::byte> demo = embedded_demo_model();
    line_.write("llama.gguf", {reinterpret_cast<const char*>(demo.data()), demo.size()});
  }

  /// Standard output of a command that succeeds.
  std::string output(const std::string& arguments, const std::string& input = "") const {
    const Outcome outcome = line_.minfer(arguments, input);
    EXPECT_EQ(outcome.exit_code, 0) << arguments << ": " << outcome.err;
    return outcome.out;
  }
  /// The message of a command that is refused with this code.
  std::string refusal(const std::string& arguments, int exit_code) const {
    const Outcome outcome = line_.minfer(arguments);
    EXPECT_EQ(outcome.exit_code, exit_code) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    return outcome.err;
  }

  test::CommandLine line_;
};

TEST_F(ModelArgumentTest, RunTakesTheModelFirst) {
  const std::string tiny = output("run -q --model synthetic:tiny:q8_0 Once -n 5");
  const std::string demo = output("run -q Once -n 5");
  ASSERT_NE(tiny, demo);
  EXPECT_EQ(output("run -q synthetic:tiny:q8_0 Once -n 5"), tiny);
  EXPECT_EQ(output("run -q llama.gguf Once -n 5"), demo);
  // Alone, the argument is a model, by its name or by its content, and the prompt comes from standard input.
  EXPECT_EQ(output("run -q synthetic:tiny:q8_0 -n 5", "Once\n"), tiny);
  EXPECT_EQ(output("run -q llama.gguf -n 5", "Once\n"), demo);
  std::filesystem::copy_file(line_.path("llama.gguf"), line_.path("sha256-0123"));
  EXPECT_EQ(output("run -q sha256-0123 -n 5", "Once\n"), demo);
  // A file that is no model may be a prompt, and so may anything together with --model.
  line_.write("Once", "text");
  EXPECT_EQ(output("run -q Once -n 5"), demo);
  EXPECT_EQ(output("run -q --model '' llama.gguf -n 5"), output("run -q -n 5", "llama.gguf"));
}

TEST_F(ModelArgumentTest, EveryCommandWithAModelTakesItFirst) {
  EXPECT_THAT(output("bench -p 8 -n 0 -r 1 synthetic:tiny:q8_0 -o json"), HasSubstr("synthetic:tiny:q8_0"));
  EXPECT_THAT(output("bench synthetic:tiny:q8_0 --kernels --op rms_norm --tokens 1 -r 1 -o json"),
              HasSubstr("rms_norm"));
  EXPECT_EQ(output("tokenize synthetic:tiny az --ids --no-bos"), "100 125\n");
  EXPECT_EQ(output("tokenize synthetic:tiny --ids --no-bos", "az"), "100 125\n");
  line_.write("ids.txt", "5 6 7");
  EXPECT_THAT(output("eval synthetic:tiny:q8_0 --tokens ids.txt --logits out.bin"), HasSubstr("3 positions"));
  EXPECT_THAT(output("inspect llama.gguf --no-tensors"), HasSubstr("llama.gguf"));
  line_.write("chat.json", R"({"messages": [{"role": "user", "content": "hi"}]})");
  EXPECT_EQ(output("tokenize llama.gguf --chat chat.json"), output("tokenize --chat chat.json"));
  EXPECT_THAT(refusal("tokenize hello --chat chat.json", 1), HasSubstr("\"hello\""));
}

TEST_F(ModelArgumentTest, TwoModelsOrTwoTextsAreRefused) {
  EXPECT_THAT(refusal("run --model synthetic:tiny a b", 1), HasSubstr("quotes"));
  EXPECT_THAT(refusal("run Once upon", 1), HasSubstr("quotes"));
  EXPECT_THAT(refusal("bench -m synthetic:tiny llama.gguf", 2), HasSubstr("llama.gguf"));
  EXPECT_THAT(refusal("bench llama.gguf -m synthetic:tiny", 2), HasSubstr("--model"));
}

TEST_F(ModelArgumentTest, AMistypedModelNamesWhatIsNear) {
  for (const char* command :
       {"run lama.gguf hi", "bench lama.gguf", "tokenize lama.gguf hi", "inspect lama.gguf",
        "serve lama.gguf", "bench --kernels lama.gguf", "eval lama.gguf --text llama.gguf"}) {
    EXPECT_THAT(refusal(command, 1), HasSubstr("lama.gguf: no such file; did you mean \"llama.gguf\"?"))
        << command;
  }
  EXPECT_THAT(refusal("run synthetic:tinny hi", 1), HasSubstr("did you mean \"tiny\"?"));
}

TEST_F(ModelArgumentTest, AMistypedFileNamesWhatIsNear) {
  line_.write("story.txt", "x");
  for (const char* command : {"eval --text stroy.txt", "eval --logits o --tokens stroy.txt",
                              "bench --dataset stroy.txt", "serve --chat-template stroy.txt"}) {
    EXPECT_THAT(refusal(command, 2), HasSubstr("stroy.txt: no such file; did you mean \"story.txt\"?"))
        << command;
  }
  EXPECT_THAT(refusal("profile report stroy.txt", 1), HasSubstr("did you mean \"story.txt\"?"));
  EXPECT_THAT(refusal("profile trace stroy.txt -o t.json", 1), HasSubstr("did you mean \"story.txt\"?"));
}

TEST_F(ModelArgumentTest, AMistypedCommandOrOptionNamesWhatIsNear) {
  EXPECT_THAT(refusal("serv", 2), HasSubstr("did you mean \"serve\"?"));
  EXPECT_THAT(refusal("fly", 2), HasSubstr("run, serve, bench"));
  EXPECT_THAT(refusal("fly", 2), Not(HasSubstr("did you mean")));
  EXPECT_THAT(refusal("llama.gguf hi", 2), HasSubstr("minfer run llama.gguf"));
  EXPECT_THAT(refusal("profile reprot x", 2), HasSubstr("did you mean \"report\"?"));
  EXPECT_THAT(refusal("run --tempertaure 0.8 hi", 2),
              HasSubstr("--tempertaure: not an option of minfer run; did you mean \"--temperature\""));
  EXPECT_THAT(refusal("serve --max-num-seq=4", 2), HasSubstr("did you mean \"--max-num-seqs\"?"));
  EXPECT_THAT(refusal("profile report x --stpe 3", 2), HasSubstr("did you mean \"--step\" or \"--steps\"?"));
  EXPECT_THAT(refusal("--hlep", 2), HasSubstr("did you mean \"--help\"?"));
  EXPECT_THAT(refusal("run -Z hi", 2), HasSubstr("-Z: not an option of minfer run"));
}

TEST_F(ModelArgumentTest, AMistypedValueNamesWhatIsNear) {
  EXPECT_THAT(refusal("run --device cdua hi", 2),
              HasSubstr("expected one of auto, cpu, cuda; did you mean \"cuda\"?"));
  EXPECT_THAT(refusal("bench -o jsno", 2), HasSubstr("did you mean \"json\""));
  EXPECT_THAT(refusal("run --kv-cache-dtype bf61 hi", 2), HasSubstr("did you mean \"bf16\"?"));
  EXPECT_THAT(refusal("serve --log-level wraning", 2), HasSubstr("did you mean \"warning\"?"));
  // Upper case is accepted where it was before.
  EXPECT_NE(output("run --device CPU --kv-cache-dtype F16 hi -n 2"), "");
}

}  // namespace
}  // namespace minfer
