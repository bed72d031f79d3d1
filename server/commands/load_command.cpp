#include "server/commands/load_command.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "server/bench/bench_load.h"
#include "server/bench/bench_output.h"
#include "server/bench/replay.h"
#include "server/hub/hub.h"
#include "server/terminal/terminal.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

/// As CLI::PositiveNumber, but "inf" is one too.
const CLI::Validator kPositiveOrInf(
    [](std::string& text) -> std::string {
      double value = 0.0;
      const bool is_positive = CLI::detail::lexical_cast(text, value) && value > 0.0;
      return is_positive ? "" : "expected a positive number or inf, found " + text;
    },
    "POSITIVE or inf");

/// Adds an option whose value becomes a member of the body of each request.
template <class Value>
void add_member(const OptionGroup& group, const std::string& name, Json& body, CLI::Option* base_url,
                const std::string& description = "sent with each request") {
  std::string member = name.substr(2);
  std::ranges::replace(member, '-', '_');
  const auto set = [&body, member](const Value& value) { body[member] = value; };
  add_taken<Value>(group, name, set, description, base_url);
}

void save(const LoadArgs& args, const Json& result) {
  const std::string path = args.result_filename.empty()
                               ? fmt::format("minfer-bench-{}.json", result["date"].get<std::string>())
                               : args.result_filename;
  std::ofstream file(path);
  file << result.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
  file.flush();
  if (!file) fail<FileError>("cannot write {}", path);
  fmt::print(stderr, "result saved to {}\n", path);
}

/// For each kind of error the message of one error, fit for a terminal.
void print_errors(const LoadResult& result) {
  std::map<std::string, std::string> details;
  for (const RequestRecord& record : result.records) {
    if (!record.completed()) details.try_emplace(record.error, record.error_detail);
  }
  for (auto& [kind, detail] : details) {
    if (detail.empty()) continue;
    std::ranges::replace_if(
        detail, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; }, ' ');
    fmt::print(stderr, "{}, e.g.: {}\n", kind, detail);
  }
}

void report(const LoadArgs& args, const LoadResult& result, const LoadSubject& subject,
            const std::string& format, const Json& replay = {}) {
  Json json = load_result_json(result, args.workload, args.report, subject);
  if (!replay.is_null()) json["replay"] = replay;
  print_results(Json::array({json}), load_result_table(json), format);
  if (!replay.is_null() && (format == "table" || format == "md"))
    print_results(json, replay_table(replay), format);
  print_errors(result);
  if (args.save_detailed) add_details(json, result);
  if (args.save_result || args.save_detailed || !args.result_filename.empty()) save(args, json);
  if (result.interrupted) end_as_interrupted();
  if (json["completed"] == 0) fail("no request was completed: {}", json["error_counts"].dump());
}

/// Runs the load before the one that counts: `run(conversations)` is as for the load itself.
template <class Run>
void warm_up(const std::vector<Conversation>& warmup, Run run) {
  if (warmup.empty()) return;
  const LoadResult result = run(warmup);
  if (result.interrupted) end_as_interrupted();
  for (const RequestRecord& record : result.records) {
    if (!record.completed()) fail("warm-up: {}", record.problem());
  }
}

}  // namespace

void LoadArgs::add_to(CLI::App& command) {
  add_workload_options({command, kGroup});
  add_report_options({command, kGroup});
  add_server_options(command);
}

void LoadArgs::add_workload_options(const OptionGroup& group) {
  add_option(group, "--num-prompts", workload.num_prompts,
             "requests to send; with --num-turns, conversations; with --replay, the first ones of the record "
             "(default with --base-url and without --dataset: 1000)",
             CLI::PositiveNumber);
  CLI::Option* dataset = add_option(
      group, "--dataset", workload.dataset,
      "prompts from JSON Lines: {\"prompt\": TEXT or [ids], \"output_len\": N, \"priority\": N}; the "
      "last two may be left out; a lower priority is served first with --scheduling-policy priority",
      existing_file());
  add_with_default(group, "--input-len,--random-input-len", workload.input_len, "tokens of a random prompt",
                   CLI::PositiveNumber);
  add_with_default(group, "--output-len,--random-output-len", workload.output_len,
                   "tokens to generate for each", CLI::PositiveNumber);
  add_with_default(group, "--random-prefix-len", workload.prefix_len,
                   "tokens in front of every random prompt, the same for all", CLI::NonNegativeNumber);
  add_with_default(group, "--random-range-ratio", workload.range_ratio,
                   "R: random lengths of input and output between 1 - R and 1 + R times those given",
                   CLI::Range(0.0, 0.999));
  add_with_default(
      group, "--num-turns", workload.num_turns,
      "turns of a conversation; each sends all earlier prompts and answers, then a new random prompt",
      CLI::PositiveNumber);
  for (const char* other : {"--input-len", "--random-prefix-len", "--random-range-ratio", "--num-turns"})
    dataset->excludes(group.command.get_option(other));
  CLI::Option* rate = add_with_default(
      group, "--request-rate", workload.request_rate,
      "requests (conversations) per second, at random times; inf: all at once", kPositiveOrInf);
  add_with_default(group, "--burstiness", workload.burstiness,
                   "shape of the gamma distribution of the gaps between requests: 1 is a Poisson "
                   "process, less is burstier, more is more even",
                   CLI::PositiveNumber, rate);
  add_option(group, "--max-concurrency", workload.max_concurrency,
             "requests (conversations) in flight at most (default: no limit)", CLI::PositiveNumber);
  add_with_default(group, "--num-warmups", workload.num_warmups,
                   "copies of the first request that are sent before the load and not counted",
                   CLI::NonNegativeNumber);
  CLI::Option* replay =
      add_option(group, "--replay", workload.replay,
                 "replay the load of a profile (--profile-out of serve, bench or run): arrivals, lengths of "
                 "prompts and outputs, shared beginnings of prompts, priorities, stream intervals and "
                 "cancellations; the report shows its figures beside the recorded ones",
                 existing_file());
  for (const char* other : {"--dataset", "--input-len", "--output-len", "--random-prefix-len",
                            "--random-range-ratio", "--num-turns", "--request-rate"})
    replay->excludes(group.command.get_option(other));
  add_option(group, "--replay-speed", workload.replay_speed,
             "requests arrive this many times as fast as they were recorded; inf: all at once",
             kPositiveOrInf, Shown{"X|inf [1]"}, replay);
}

void LoadArgs::add_report_options(const OptionGroup& group) {
  const auto take_goodput = [this](const std::vector<std::string>& pairs) {
    report.goodput = parse_goodput(pairs);
  };
  add_taken<std::vector<std::string>>(
      group, "--goodput", take_goodput,
      "count the requests that meet all of these: METRIC:MILLISECONDS ... of ttft, tpot, e2el")
      ->expected(1, 3);
  add_with_default(group, "--percentile-metrics", report.metrics,
                   "metrics to report, of ttft, tpot, itl, e2el", one_of({"ttft", "tpot", "itl", "e2el"}))
      ->delimiter(',');
  add_with_default(group, "--metric-percentiles", report.percentiles, "percentiles to report of each",
                   CLI::Range(0.0, 100.0))
      ->delimiter(',');
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
  add_with_default(group, "--endpoint", remote.endpoint,
                   "path to send to; .../chat/completions gets messages", base_url);
  add_option(group, "--tokenizer", tokenizer,
             "GGUF file, hf:ORG/REPO[:QUANT], synthetic:NAME or demo: random prompts are token ids of its "
             "vocabulary, of exact length (default: they are as many English words)",
             base_url);
  add_option(group, "--api-key", remote.api_key, "bearer token (default: OPENAI_API_KEY of the environment)",
             base_url);
  add_option(group, "--header", remote.headers, "NAME=VALUE ..., sent with each request", base_url);
  const auto take_extra_body = [this](const std::string& text) {
    remote.override_body = Json::parse(text, nullptr, false);
    if (!remote.override_body.is_object()) fail("--extra-body: {}, expected a JSON object", text);
  };
  add_taken(group, "--extra-body", take_extra_body,
            "JSON object: members to add to the body of each request, or to replace in it", base_url);
  add_with_default(group, "--request-timeout-sec", remote.request_timeout_s,
                   "a request that takes longer fails", CLI::PositiveNumber, base_url);
  add_with_default(group, "--ready-check-timeout-sec", ready_check_timeout_s,
                   "longest wait, before the load, until the server answers a request (0: do not wait)",
                   CLI::NonNegativeNumber, base_url);
  add_flag(group, "--ignore-eos", ignore_eos,
           "ask the server to generate on after the model's end token (random prompts always do)", base_url);
  remote.body["temperature"] = 0.0;
  const std::string temperature = "sent with each request (default: 0)";
  add_member<double>(group, "--temperature", remote.body, base_url, temperature);
  add_member<double>(group, "--top-p", remote.body, base_url);
  add_member<int32_t>(group, "--top-k", remote.body, base_url);
  for (const char* name : {"--min-p", "--presence-penalty", "--frequency-penalty", "--repetition-penalty"})
    add_member<double>(group, name, remote.body, base_url);
}

void LoadArgs::resolve() {
  if (!is_remote()) return;
  if (workload.num_prompts == 0 && workload.dataset.empty()) workload.num_prompts = 1000;
  if (const char* key = std::getenv("OPENAI_API_KEY"); key != nullptr && remote.api_key.empty())
    remote.api_key = key;
  remote.keep_text = save_detailed;
  if (!remote.endpoint.starts_with('/')) fail("--endpoint: \"{}\" does not begin with /", remote.endpoint);
  if (remote.is_chat() && !tokenizer.empty()) {
    fail("--tokenizer: {} takes text, not token ids; random prompts for it are words", remote.endpoint);
  }
  if (ignore_eos || workload.dataset.empty()) remote.body["ignore_eos"] = true;
}

void run_engine_load_test(const LoadArgs& args, const EngineArgs& engine_args,
                          const ProfileArgs& profile_args, const std::string& format) {
  EngineArgs replaying = engine_args;
  std::optional<RecordedLoad> recorded;
  if (!args.workload.replay.empty()) {
    recorded = read_recorded_load(args.workload.replay);
    if (args.workload.num_prompts > 0) recorded->keep_first(static_cast<size_t>(args.workload.num_prompts));
    replaying.replayed_acceptance = recorded->acceptance();
  }
  const std::unique_ptr<Engine> engine = replaying.make_engine();
  const std::vector<Conversation> workload = recorded ? replay_workload(*recorded, args.workload, *engine)
                                                      : make_workload(args.workload, &engine->tokenizer());
  const auto run = [&](const std::vector<Conversation>& load) {
    return run_load(*engine, load, args.workload.max_concurrency);
  };
  // Like the first request. In a replay its tokens differ, so that none of the replay's own may be cached.
  warm_up(recorded ? make_workload({.num_prompts = args.workload.num_warmups,
                                    .input_len = recorded->requests.front().prompt_tokens,
                                    .output_len = workload.front().turns.front().output_len},
                                   &engine->tokenizer())
                   : make_warmup(args.workload, workload),
          run);
  engine->recorder().reset();  // steps are numbered from the load's first
  LoadResult result;
  RequestFigures figures;
  if (recorded) engine->recorder().add_sink(figures);
  {
    const ProfileSession profile(profile_args, *engine);  // after the warm-up: its steps are not the run's
    result = run(workload);
  }
  engine->recorder().remove_sink(figures);
  Json replay;
  if (recorded) {
    replay = replay_json(*recorded, args.workload.replay_speed, figures, describe_engine(*engine));
    for (const Json& note : replay["notes"])
      print_notice(fmt::format("minfer: note: {}\n", note.get<std::string>()));
  }
  report(args, result,
         {.backend = "minfer", .model = engine->model().name(), .base_url = "", .tokenizer = ""}, format,
         replay);
}

void run_server_load_test(const LoadArgs& args, const std::string& format) {
  std::unique_ptr<Tokenizer> tokenizer;
  if (!args.tokenizer.empty())
    tokenizer = open_tokenizer(args.tokenizer == "demo" ? "" : local_model(args.tokenizer));
  const std::vector<Conversation> workload = make_workload(args.workload, tokenizer.get());
  RemoteOptions options = args.remote;
  options.tokenizer = tokenizer.get();
  RemoteLoad load(options);
  if (args.ready_check_timeout_s > 0.0) load.wait_until_ready(workload, args.ready_check_timeout_s);
  const LoadSubject subject{.backend = options.is_chat() ? "openai-chat" : "openai",
                            .model = load.model(),
                            .base_url = options.base_url,
                            .tokenizer = args.tokenizer};
  const auto run = [&](const std::vector<Conversation>& conversations) {
    return load.run(conversations, args.workload.max_concurrency);
  };
  warm_up(make_warmup(args.workload, workload), run);
  report(args, run(workload), subject, format);
}

}  // namespace minfer
