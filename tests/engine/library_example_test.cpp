// minfer as a library: a model, two requests at once, text as it comes.
#include <iostream>
#include <map>

#include <gtest/gtest.h>

#include "engine/engine.h"

TEST(LibraryExample, GeneratesTextForTwoRequests) {
  minfer::EngineOptions options;
  options.max_num_seqs = 2;

  // A path to a GGUF file, "synthetic:NAME", or "" for the demo model inside the library.
  minfer::Engine engine(minfer::open_model(""), options);

  for (const std::string text : {"Once upon a time", "One day, "}) {
    minfer::Request request;
    request.id = text;
    request.prompt = engine.tokenizer().encode(text);
    request.sampling.temperature = 0.8f;
    request.sampling.top_p = 0.95f;
    request.sampling.seed = 7;
    request.sampling.max_tokens = 24;
    engine.submit(request);
  }

  std::map<std::string, std::string> stories;
  while (engine.has_work()) {
    for (const minfer::RequestOutput& output : engine.step()) {
      stories[output.id] += output.text;
      if (output.finish) std::cout << output.id << stories[output.id] << '\n';
    }
  }
  EXPECT_EQ(stories.size(), 2u);
  for (const auto& [prompt, story] : stories)
    EXPECT_GT(story.size(), 20u);
}
