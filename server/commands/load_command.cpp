#include "server/commands/load_command.h"

#include <fstream>
#include <optional>

#include "server/bench/bench_load.h"
#include "server/bench/bench_output.h"
#include "server/bench/bench_remote.h"
#include "server/bench/replay/replay_report.h"
#include "server/terminal/terminal.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

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

void run_engine_load_test(const LoadArgs& args, const EngineArgs& engine_args,
                          const ProfileArgs& profile_args, const std::string& format) {
  EngineArgs replaying = engine_args;
  std::optional<RecordedLoad> recorded;
  if (!args.workload.replay.empty()) {
    recorded = read_recorded_load(args.workload.replay);
    if (args.workload.num_prompts > 0) recorded->keep_first(static_cast<size_t>(args.workload.num_prompts));
    replaying.speculation.replay_acceptance(recorded->acceptance());
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
  if (!args.tokenizer.empty()) tokenizer = open_tokenizer(args.tokenizer == "demo" ? "" : args.tokenizer);
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
