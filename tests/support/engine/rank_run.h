#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/base/error.h"
#include "tests/support/engine/engine_run.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/models/logit_run.h"

/// Runs for tests of several ranks, on the CPU and on GPUs, in threads and in processes: one rank gives the expected result.
namespace minfer::test {

inline EngineOptions rank_options(DeviceChoice device, int32_t ranks) {
  EngineOptions options;
  options.device = device;
  options.max_model_len = 256;
  options.max_num_seqs = 8;
  options.num_blocks = 256;
  options.threads = ranks;
  options.max_num_batched_tokens = 64;  // prompts in pieces, beside decoding
  options.tensor_parallel_size = ranks;
  return options;
}

inline std::vector<LogitJob> rank_jobs(int32_t vocab_size) {
  std::mt19937 random(11);
  std::vector<LogitJob> jobs;
  for (const int32_t length : {1, 40, 17, 70}) {
    std::vector<TokenId> prompt(static_cast<size_t>(length));
    for (TokenId& token : prompt)
      token = static_cast<TokenId>(random() % static_cast<uint32_t>(vocab_size));
    jobs.push_back({prompt, 12});
  }
  return jobs;
}

inline std::vector<LogitTrace> rank_logits(const ModelSource& source, const EngineOptions& options) {
  return LogitRun(source, options).run(rank_jobs(source.config().vocab_size));
}

/// A model with a vocabulary that no number of ranks divides, like Granite 3's 49,155.
class OddVocabulary final : public ModelSource {
 public:
  explicit OddVocabulary(std::unique_ptr<ModelSource> model)
      : ModelSource("odd", model->config()), model_(std::move(model)) {
    config_.vocab_size -= 1 - config_.vocab_size % 2;
    for (HostTensor tensor : model_->tensors()) {
      if (tensor.name == "token_embd.weight" || tensor.name == "output.weight")
        tensor.rows = config_.vocab_size;
      add_tensor(std::move(tensor));
    }
  }
  std::unique_ptr<Tokenizer> make_tokenizer() const override { return model_->make_tokenizer(); }
  void release_data() override { model_->release_data(); }

 private:
  std::unique_ptr<ModelSource> model_;
};

/// Greedy and drawn tokens, and scores of a prompt that is computed in pieces.
inline Answers rank_answers(const EngineOptions& options) {
  Engine engine(open_model(""), options);
  const std::vector<TokenId> prompt = engine.tokenizer().encode("Once upon a time");
  for (int i = 0; i < 5; ++i) {
    Request request = greedy_request("r" + std::to_string(i), prompt, 60 + 7 * i);
    if (i % 2 == 1) {
      request.sampling.temperature = 0.7f;
      request.sampling.top_p = 0.9f;
      request.sampling.repetition_penalty = 1.1f;
      request.sampling.seed = static_cast<uint64_t>(i);
    }
    engine.submit(request);
  }
  Request scored = greedy_request("scored", std::vector<TokenId>(100, prompt.back()), 3);
  scored.sampling.prompt_logprobs = 1;
  engine.submit(scored);
  return Answers().run(engine);
}

/// Runs steps until the engine throws; returns its message.
inline std::string failure_of(Engine& engine) {
  engine.submit(greedy_request("a", engine.tokenizer().encode("Once upon a time"), 200));
  try {
    Answers().run(engine);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

}  // namespace minfer::test
