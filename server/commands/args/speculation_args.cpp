#include "server/commands/args/speculation_args.h"

#include <map>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "models/decoder/weights/model_source.h"
#include "server/commands/args/checks.h"

namespace minfer {
namespace {

const std::map<std::string, SpeculationMethod> kMethods{{"off", SpeculationMethod::off},
                                                        {"ngram", SpeculationMethod::ngram},
                                                        {"draft", SpeculationMethod::draft}};

}  // namespace

void SpeculationArgs::add_to(const OptionGroup& options) {
  method_option_ =
      add_option(
          options, "--speculative", options_.method,
          "guess tokens and check several in one step: off, ngram (guess what followed an earlier occurrence "
          "of the last tokens) or draft (a smaller model guesses). The output stays the same")
          ->transform(one_of(kMethods))
          ->option_text("METHOD [off, with --speculative-model draft]");
  model_option_ =
      add_option(options, "--speculative-model", model_,
                 "the smaller model, with the same vocabulary: a GGUF file or synthetic:NAME[:TYPE]")
          ->option_text("MODEL");
  add_with_default(options, "--num-speculative-tokens", options_.num_tokens,
                   fmt::format("most guesses of a sequence in a step (1 to {})", kMostDraftTokens));
  add_with_default(
      options, "--ngram-prompt-lookup-max", options_.ngram_max,
      fmt::format("longest run of last tokens to look for earlier in the sequence (1 to {})", kLongestNgram));
  add_with_default(options, "--ngram-prompt-lookup-min", options_.ngram_min,
                   "shortest run of last tokens to look for");
  add_flag(options, "--adaptive-speculation,!--no-adaptive-speculation", options_.adaptive,
           "make only as many guesses as pay by measured times, perhaps none (default: on)");
}

void SpeculationArgs::add_synthetic_acceptance(const OptionGroup& options) {
  add_option(options, "--synthetic-acceptance-rate", options_.synthetic_acceptance,
             "accept each guess with this chance, whatever the model says, to see how fast a synthetic model "
             "would be at this acceptance rate. The output is then not the model's")
      ->check(CLI::Range(0.0, 1.0))
      ->option_text("CHANCE");
}

SpeculationOptions SpeculationArgs::resolve(const std::string& model) const {
  SpeculationOptions resolved = options_;
  const bool has_model = model_option_ != nullptr && model_option_->count() > 0;
  if (has_model && method_option_->count() == 0) resolved.method = SpeculationMethod::draft;
  const bool is_draft = resolved.method == SpeculationMethod::draft;
  if (has_model && !is_draft) fail("--speculative-model: expected only with --speculative draft");
  if (!has_model && is_draft) fail("--speculative draft: expected with --speculative-model");
  if (resolved.synthetic_acceptance) {
    constexpr const char* kOption = "--synthetic-acceptance-rate";
    if (resolved.method == SpeculationMethod::off)
      fail("{}: expected only with --speculative ngram or draft", kOption);
    if (!model.starts_with(kSyntheticPrefix))
      fail("{}: --model \"{}\", expected synthetic:NAME", kOption, model);
  }
  if (!resolved.synthetic_acceptance && resolved.method != SpeculationMethod::off)
    resolved.synthetic_acceptance = replayed_acceptance_;
  if (is_draft) resolved.draft_model = open_model(model_);
  return resolved;
}

std::string describe(const SpeculationCounts& counts) {
  if (counts.drafts == 0) return "no draft tokens";
  return fmt::format("{} of {} draft tokens accepted, {:.2f} tokens a check", counts.accepted_tokens,
                     counts.draft_tokens,
                     1.0 + static_cast<double>(counts.accepted_tokens) / static_cast<double>(counts.drafts));
}

}  // namespace minfer
