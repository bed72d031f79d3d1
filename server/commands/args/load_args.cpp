#include "server/commands/args/load_args.h"

#include <cstdlib>

#include "kernels/base/error.h"
#include "server/commands/args/checks.h"

namespace minfer {
namespace {

/// As CLI::PositiveNumber, but "inf" is one too.
const CLI::Validator kPositiveOrInf(
    [](std::string& text) -> std::string {
      double value = 0.0;
      const bool is_positive = CLI::detail::lexical_cast(text, value) && value > 0.0;
      return is_positive ? "" : "expected a positive number or inf, found " + text;
    },
    "POSITIVE or inf");

}  // namespace

void LoadArgs::add_to(CLI::App& command) {
  add_workload_options(command);
  add_report_options(command);
  add_server_options(command);
}

void LoadArgs::add_workload_options(CLI::App& command) {
  const OptionGroup group{command, kGroup};
  add_option(group, "--num-prompts", workload.num_prompts,
             "requests to send; with --num-turns, conversations; with --replay, the first ones of the record "
             "(default with --base-url and without --dataset: 1000)")
      ->check(CLI::PositiveNumber);
  CLI::Option* dataset =
      add_option(
          group, "--dataset", workload.dataset,
          "prompts from JSON Lines: {\"prompt\": TEXT or [ids], \"output_len\": N, \"priority\": N}; the "
          "last two may be left out; a lower priority is served first with --scheduling-policy priority")
          ->check(existing_file());
  add_with_default(group, "--input-len,--random-input-len", workload.input_len, "tokens of a random prompt")
      ->check(CLI::PositiveNumber)
      ->excludes(dataset);
  add_with_default(group, "--output-len,--random-output-len", workload.output_len,
                   "tokens to generate for each")
      ->check(CLI::PositiveNumber);
  add_with_default(group, "--random-prefix-len", workload.prefix_len,
                   "tokens in front of every random prompt, the same for all")
      ->check(CLI::NonNegativeNumber)
      ->excludes(dataset);
  add_with_default(group, "--random-range-ratio", workload.range_ratio,
                   "R: random lengths of input and output between 1 - R and 1 + R times those given")
      ->check(CLI::Range(0.0, 0.999))
      ->excludes(dataset);
  add_with_default(
      group, "--num-turns", workload.num_turns,
      "turns of a conversation; each sends all earlier prompts and answers, then a new random prompt")
      ->check(CLI::PositiveNumber)
      ->excludes(dataset);
  CLI::Option* rate =
      add_with_default(group, "--request-rate", workload.request_rate,
                       "requests (conversations) per second, at random times; inf: all at once")
          ->check(kPositiveOrInf);
  add_with_default(group, "--burstiness", workload.burstiness,
                   "shape of the gamma distribution of the gaps between requests: 1 is a Poisson "
                   "process, less is burstier, more is more even")
      ->check(CLI::PositiveNumber)
      ->needs(rate);
  add_option(group, "--max-concurrency", workload.max_concurrency,
             "requests (conversations) in flight at most (default: no limit)")
      ->check(CLI::PositiveNumber);
  add_with_default(group, "--num-warmups", workload.num_warmups,
                   "copies of the first request that are sent before the load and not counted")
      ->check(CLI::NonNegativeNumber);
  CLI::Option* replay =
      add_option(group, "--replay", workload.replay,
                 "replay the load of a profile (--profile-out of serve, bench or run): arrivals, lengths of "
                 "prompts and outputs, shared beginnings of prompts, priorities, stream intervals and "
                 "cancellations; the report shows its figures beside the recorded ones")
          ->check(existing_file());
  for (const char* other : {"--dataset", "--input-len", "--output-len", "--random-prefix-len",
                            "--random-range-ratio", "--num-turns", "--request-rate"})
    replay->excludes(command.get_option(other));
  add_option(group, "--replay-speed", workload.replay_speed,
             "requests arrive this many times as fast as they were recorded; inf: all at once")
      ->check(kPositiveOrInf)
      ->option_text("X|inf [1]")
      ->needs(replay);
}

void LoadArgs::add_report_options(CLI::App& command) {
  const OptionGroup group{command, kGroup};
  add_option(group, "--goodput", goodput_,
             "count the requests that meet all of these: METRIC:MILLISECONDS ... of ttft, tpot, e2el")
      ->expected(1, 3);
  add_with_default(group, "--percentile-metrics", report.metrics,
                   "metrics to report, of ttft, tpot, itl, e2el")
      ->delimiter(',')
      ->check(one_of({"ttft", "tpot", "itl", "e2el"}));
  add_with_default(group, "--metric-percentiles", report.percentiles, "percentiles to report of each")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 100.0));
  add_flag(group, "--save-result", save_result, "save the result as minfer-bench-DATE.json");
  add_option(group, "--result-filename", result_filename, "save the result under this name");
  add_flag(group, "--save-detailed", save_detailed,
           "save lengths, latencies, texts and errors of every request too");
}

void LoadArgs::add_server_options(CLI::App& command) {
  const OptionGroup group{command, kServerGroup};
  CLI::Option* base_url =
      add_option(group, "--base-url", remote.base_url,
                 "send the load to the server at http[s]://HOST[:PORT], which speaks OpenAI's API; --model "
                 "is then the name it serves (default: the first of /v1/models)")
          ->excludes(command.get_option("--replay"));
  const auto add = [&](const char* name, auto& value, const char* description) {
    return add_option(group, name, value, description)->needs(base_url);
  };
  add("--endpoint", remote.endpoint, "path to send to; .../chat/completions gets messages")
      ->capture_default_str();
  add("--tokenizer", tokenizer,
      "GGUF file, synthetic:NAME or demo: random prompts are token ids of its vocabulary, of exact length "
      "(default: they are as many English words)");
  add("--api-key", remote.api_key, "bearer token (default: OPENAI_API_KEY of the environment)");
  add("--header", remote.headers, "NAME=VALUE ..., sent with each request");
  add("--extra-body", extra_body_,
      "JSON object: members to add to the body of each request, or to replace in it");
  add("--request-timeout-sec", remote.request_timeout_s, "a request that takes longer fails")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add("--ready-check-timeout-sec", ready_check_timeout_s,
      "longest wait, before the load, until the server answers a request (0: do not wait)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  add_flag(group, "--ignore-eos", ignore_eos,
           "ask the server to generate on after the model's end token (random prompts always do)")
      ->needs(base_url);
  add_sampling_options(group, base_url);
}

void LoadArgs::add_sampling_options(const OptionGroup& group, CLI::Option* base_url) {
  const auto add = [&](const char* name, auto& value) {
    add_option(group, name, value, "sent with each request")->needs(base_url);
  };
  add_option(group, "--temperature", sampling_.temperature, "sent with each request (default: 0)")
      ->needs(base_url);
  add("--top-p", sampling_.top_p);
  add("--top-k", sampling_.top_k);
  add("--min-p", sampling_.min_p);
  add("--presence-penalty", sampling_.presence_penalty);
  add("--frequency-penalty", sampling_.frequency_penalty);
  add("--repetition-penalty", sampling_.repetition_penalty);
}

void LoadArgs::resolve() {
  report.goodput = parse_goodput(goodput_);
  if (!is_remote()) return;
  if (workload.num_prompts == 0 && workload.dataset.empty()) workload.num_prompts = 1000;
  if (const char* key = std::getenv("OPENAI_API_KEY"); key != nullptr && remote.api_key.empty())
    remote.api_key = key;
  remote.keep_text = save_detailed;
  if (!remote.endpoint.starts_with('/')) fail("--endpoint: \"{}\" does not begin with /", remote.endpoint);
  if (remote.is_chat() && !tokenizer.empty()) {
    fail("--tokenizer: {} takes text, not token ids; random prompts for it are words", remote.endpoint);
  }
  resolve_body();
}

void LoadArgs::resolve_body() {
  nlohmann::ordered_json& body = remote.body;
  const auto add = [&](const char* name, const auto& value) {
    if (value) body[name] = *value;
  };
  body["temperature"] = sampling_.temperature.value_or(0.0);
  add("top_p", sampling_.top_p);
  add("top_k", sampling_.top_k);
  add("min_p", sampling_.min_p);
  add("presence_penalty", sampling_.presence_penalty);
  add("frequency_penalty", sampling_.frequency_penalty);
  add("repetition_penalty", sampling_.repetition_penalty);
  if (ignore_eos || workload.dataset.empty()) body["ignore_eos"] = true;
  if (extra_body_.empty()) return;
  remote.override_body = nlohmann::ordered_json::parse(extra_body_, nullptr, false);
  if (!remote.override_body.is_object()) fail("--extra-body: {}, expected a JSON object", extra_body_);
}

}  // namespace minfer
