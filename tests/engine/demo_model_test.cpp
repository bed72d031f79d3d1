// The demo model's answers can be checked, so it tests everything together: tokeniser, scheduler, paged
// cache, kernels and sampler. Recall over a long context fails if a KV block is wrong.
#include <algorithm>
#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/engine/engine_run.h"
#include "tests/support/last_steps.h"
#include "tests/support/models/logit_run.h"
#include "tests/support/paths.h"

namespace minfer {
namespace {

using test::Answers;

/// A line of models/demo/eval.jsonl: the model's answer after training, in float32, with PyTorch.
struct Question {
  std::string task;
  std::string prompt;  ///< with the chat markup
  std::string answer;
  size_t prompt_tokens;
};

/// Questions that it answered correctly, by such a margin of the logits that rounding cannot change
/// them. `most_long`: the most questions with a context of 2,000 tokens.
std::vector<Question> read_questions(size_t most_long) {
  std::ifstream file(source_path("models/demo/eval.jsonl"));
  std::vector<Question> questions;
  size_t num_long = 0;
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json entry = nlohmann::json::parse(line);
    if (!entry.at("correct").get<bool>() || entry.at("margin").get<double>() <= 0.5) continue;
    Question question{entry.at("task"), entry.at("prompt"), entry.at("answer"), entry.at("prompt_tokens")};
    if (question.task == "recall_long" && ++num_long > most_long) continue;
    questions.push_back(std::move(question));
  }
  return questions;
}

/// All of them take a minute; $MINFER_TEST_FULL asks for all.
size_t most_long_questions() {
  return std::getenv("MINFER_TEST_FULL") != nullptr ? 1000 : 3;
}

std::vector<TokenId> encode(const Tokenizer& tokenizer, const std::string& prompt) {
  return tokenizer.encode(prompt, {.add_special = false, .parse_special = true});
}

TEST(DemoModelTest, AnswersEverythingAtOnceInASmallCache) {
  const std::vector<Question> questions = read_questions(most_long_questions());
  ASSERT_GE(questions.size(), 95u);
  EngineOptions options;
  options.block_size = 2;
  options.num_blocks = 1024;  // little more than one long question needs
  options.max_num_batched_tokens = 192;
  options.max_num_seqs = 32;
  Engine engine(open_model(""), options);
  for (size_t i = 0; i < questions.size(); ++i) {
    Request request =
        test::greedy_request(std::to_string(i), encode(engine.tokenizer(), questions[i].prompt), 64);
    request.sampling.ignore_eos = false;
    EXPECT_EQ(request.prompt.size(), questions[i].prompt_tokens) << questions[i].prompt;
    engine.submit(request);
  }
  const Answers answers = Answers().run(engine);
  for (size_t i = 0; i < questions.size(); ++i) {
    const test::Answer& answer = answers.at(std::to_string(i));
    EXPECT_EQ(answer.text, questions[i].answer) << questions[i].task << " " << i;
    EXPECT_EQ(answer.last.finish, FinishReason::stop);
  }
  int32_t num_preempted = 0;
  for (const StepRecord& record : test::last_steps(engine.recorder(), engine.recorder().capacity()))
    num_preempted += record.batch.preempted;
  EXPECT_GT(num_preempted, 0) << "the cache is too large for this test";
  EXPECT_EQ(engine.scheduler().blocks().num_live(), 0);
}

/// The control: if every block before the question is mistaken for the question's block, the fact to recall
/// is lost, unless it stands right before the question.
TEST(DemoModelTest, ControlWrongBlocksGiveAWrongAnswer) {
  const std::unique_ptr<ModelSource> model = open_model("");
  const std::unique_ptr<Tokenizer> tokenizer = model->make_tokenizer();
  size_t num_wrong = 0, num_asked = 0;
  for (const Question& question : read_questions(0)) {
    if (question.task != "recall_short" || question.prompt_tokens < 200 || num_asked == 4) continue;
    ++num_asked;
    EngineOptions options;
    options.num_blocks = 64;
    options.max_num_seqs = 1;
    options.threads = 1;
    const std::vector<TokenId> prompt = encode(*tokenizer, question.prompt);
    const auto answer = [&](const test::LogitRun::BeforeStep& before_step) {
      const auto tokens = test::LogitRun(*model, options).run({{prompt, 24}}, before_step).front().tokens;
      return tokenizer->decode(tokens).substr(0, question.answer.size());
    };
    EXPECT_EQ(answer({}), question.answer);
    num_wrong += answer([](HostBatch& batch, const KvCache&) {
                   const auto last = static_cast<size_t>(batch.context_len[0] / 16 - 1);
                   std::fill_n(batch.block_table.begin(), last, batch.block_table[last]);
                 }) != question.answer;
  }
  EXPECT_EQ(num_asked, 4u);
  EXPECT_GE(num_wrong, 3u);
}

}  // namespace
}  // namespace minfer
