#include <algorithm>
#include <cmath>
#include <fstream>
#include <span>
#include <vector>

#include "engine/evaluator.h"
#include "server/bench/bench_output.h"
#include "server/commands/args/engine_args.h"
#include "server/commands/args/options.h"
#include "server/commands/commands.h"
#include "server/terminal/terminal.h"

namespace minfer {
namespace {

struct EvalArgs {
  EngineArgs engine;
  std::string text_file;
  std::string tokens_file;
  std::string logits_file;
  int32_t chunk = 0;
  int32_t window = 512;

  /// Every token of a step needs a row of logits, so steps are smaller than where one token in many needs a row.
  EvalArgs() { engine.options.max_num_batched_tokens = 512; }
};

std::vector<TokenId> read_tokens(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail<FileError>("cannot read {}", path);
  std::vector<TokenId> tokens;
  for (TokenId token = 0; file >> token;)
    tokens.push_back(token);
  if (!file.eof())
    fail<FileError>("{}: expected token ids separated by white space, the {}th is not one", path,
                    tokens.size() + 1);
  if (tokens.empty()) fail<FileError>("{}: holds no token ids", path);
  return tokens;
}

/// -log of the probability that a row of logits gives `token`.
double negative_log_likelihood(std::span<const float> logits, TokenId token) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0.0;
  for (float logit : logits)
    sum += std::exp(logit - largest);
  return largest + std::log(sum) - logits[static_cast<size_t>(token)];
}

/// Perplexity over windows of `window` tokens; the first half of each is context for the second, whose tokens
/// count (as llama.cpp's perplexity tool does, so that figures can be compared).
void run_perplexity(const EvalArgs& args) {
  const std::unique_ptr<ModelSource> source = args.engine.open();
  const std::unique_ptr<Tokenizer> tokenizer = source->make_tokenizer();
  Evaluator evaluator = args.engine.told([&] { return Evaluator(*source, args.engine.engine_options()); });
  const std::vector<TokenId> tokens =
      tokenizer->encode(read_text_file(args.text_file), {.parse_special = false});
  const int32_t window = std::min(args.window, evaluator.options().max_model_len);
  if (static_cast<int64_t>(tokens.size()) < window) {
    fail("{}: {} tokens, expected at least one window of {} (--window)", args.text_file, tokens.size(),
         window);
  }
  const auto num_windows = static_cast<int32_t>(tokens.size() / static_cast<size_t>(window));
  std::vector<double> losses;
  for (int32_t w = 0; w < num_windows; ++w) {
    std::vector<TokenId> part(tokens.begin() + w * int64_t{window},
                              tokens.begin() + (w + 1) * int64_t{window});
    const std::vector<TokenId> targets(part.begin() + 1, part.end());
    if (tokenizer->bos() >= 0 && tokens.front() == tokenizer->bos()) part.front() = tokenizer->bos();
    evaluator.run(part, args.chunk, [&](int32_t first, std::span<const float> logits) {
      const auto vocab = static_cast<size_t>(evaluator.vocab_size());
      for (size_t row = 0; row < logits.size() / vocab; ++row) {
        const size_t position = static_cast<size_t>(first) + row;
        if (position < static_cast<size_t>(window / 2) || position >= targets.size()) continue;
        losses.push_back(negative_log_likelihood(logits.subspan(row * vocab, vocab), targets[position]));
      }
    });
    show_progress(
        fmt::format("window {}/{}  perplexity {:.4f}", w + 1, num_windows, std::exp(mean_of(losses))));
  }
  show_progress("");
  const double perplexity = std::exp(mean_of(losses));
  const double error = deviation_of(losses) / std::sqrt(static_cast<double>(losses.size()));
  fmt::print("perplexity {:.4f} +/- {:.4f}  ({} tokens of {} in {} windows of {})\n", perplexity,
             perplexity * error, losses.size(), tokens.size(), num_windows, window);
}

/// Logits of every position: int32 n, int32 vocab, int32 tokens[n], float32 logits[n][vocab], little-endian.
void run_logits(const EvalArgs& args) {
  const std::vector<TokenId> tokens = read_tokens(args.tokens_file);
  const std::unique_ptr<ModelSource> source = args.engine.open();
  Evaluator evaluator = args.engine.told([&] { return Evaluator(*source, args.engine.engine_options()); });
  std::ofstream out(args.logits_file, std::ios::binary);
  if (!out) fail<FileError>("cannot write {}", args.logits_file);
  const auto write = [&out](const void* data, size_t bytes) {
    out.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  };
  const int32_t header[2] = {static_cast<int32_t>(tokens.size()), evaluator.vocab_size()};
  write(header, sizeof header);
  write(tokens.data(), tokens.size() * sizeof(TokenId));
  evaluator.run(tokens, args.chunk,
                [&](int32_t, std::span<const float> logits) { write(logits.data(), logits.size_bytes()); });
  out.flush();
  if (!out) fail<FileError>("{}: the disk may be full", args.logits_file);
  fmt::print("{}: logits of {} positions\n", args.logits_file, tokens.size());
}

}  // namespace

void add_eval_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("eval", "Perplexity of a text, or the logits of given tokens");
  auto args = std::make_shared<EvalArgs>();
  args->engine.add_model_options(*command);
  const OptionGroup group{*command};
  add_option(group, "--text", args->text_file, "text file to compute the perplexity of", existing_file());
  CLI::Option* tokens = add_option(group, "--tokens", args->tokens_file,
                                   "file of token ids separated by white space", existing_file());
  tokens->excludes("--text")->needs(
      add_option(group, "--logits", args->logits_file, "file for the logits of --tokens", tokens));
  add_with_default(group, "--window", args->window, "tokens of a perplexity window; its second half counts",
                   CLI::Range(2, 1 << 20));
  add_with_default(group, "--chunk", args->chunk,
                   "tokens computed at a time, at most --max-num-batched-tokens (0: as many)");
  command->footer(
      "Examples:\n"
      "  minfer eval --text story.txt --window 128\n"
      "  minfer eval llama.gguf --text story.txt --window 128\n"
      "  minfer eval --tokens ids.txt --logits logits.bin");
  command->callback([args] {
    if (args->text_file.empty() == args->tokens_file.empty())
      fail("eval: give --text FILE, or --tokens FILE with --logits OUT");
    args->text_file.empty() ? run_logits(*args) : run_perplexity(*args);
  });
}

}  // namespace minfer
