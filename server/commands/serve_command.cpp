#include <algorithm>
#include <csignal>
#include <cstdlib>

#include <fmt/ranges.h>

#include "engine/options/sizes.h"
#include "models/chat/answer/chat_answer_parser.h"
#include "models/decoder/memory/recurrent_state_pool.h"
#include "server/commands/args/engine_args.h"
#include "server/commands/args/options.h"
#include "server/commands/commands.h"
#include "server/commands/serve_models.h"
#include "server/http/descriptors.h"
#include "server/hub/hub_name.h"
#include "server/kv_events/kv_event_publisher.h"
#include "server/serving/profile/profile_session.h"
#include "server/serving/server.h"
#include "server/terminal/greeting.h"
#include "server/terminal/terminal.h"

namespace minfer {
namespace {

const std::vector<std::pair<std::string, KvEventFormat>> kKvEventFormats{{"array", KvEventFormat::array},
                                                                         {"map", KvEventFormat::map}};
/// In the order of LogLevel.
const std::vector<std::string> kLogLevels{"debug", "info", "warning", "error", "off"};

struct ServeArgs {
  EngineArgs engine;
  ServeModels models;
  ProfileArgs profile;
  ServerOptions server;
  LogFormat log_format = LogFormat::text;
  LogLevel log_level = LogLevel::info;
  KvEventOptions kv_events;
};

/// Limits connections to the system's descriptors, so that every client that connects is answered, if only with a refusal.
void fit_descriptors(HttpLimits& limits, ServerLog& log) {
  constexpr size_t kOthers = 64;  // files, the loop's own
  const size_t limit = raise_descriptor_limit();
  if (limit == 0 || limit >= limits.max_connections + limits.spare_connections + kOthers) return;
  const size_t room = limit - std::min(kOthers, limit / 2);
  limits.spare_connections = std::min(limits.spare_connections, room / 4);
  limits.max_connections = room - limits.spare_connections;
  log.write(LogLevel::warning,
            "fewer connections than --max-connections: the limit of open files (ulimit -n) is too low",
            {{"limit", static_cast<int64_t>(limit)},
             {"max_connections", static_cast<int64_t>(limits.max_connections)}});
}

/// The first lines: for people as text, for programs in the log.
void announce(const ServeArgs& args, const ServingFacts& facts, ServerLog& log) {
  const EngineOptions& options = facts.options;
  if (args.log_format == LogFormat::text && args.log_level <= LogLevel::info) print_notice(greeting(facts));
  log.write(LogLevel::info, "serving",
            {{"url", std::string_view(facts.url)},
             {"model", std::string_view(facts.model)},
             {"context", int64_t{options.max_model_len}},
             {"kv_cache_tokens", kv_cache_tokens(options)},
             {"max_num_seqs", int64_t{options.max_num_seqs}}});
  const int64_t copies = options.num_state_copies.value_or(0);
  if (facts.state_slot_bytes > 0)
    log.write(LogLevel::info, "states of sequences",
              {{"bytes", options.num_state_slots * facts.state_slot_bytes},
               {"copies", copies},
               {"copy_bytes", copies * facts.state_slot_bytes}});
  if (const int64_t ranks = options.tensor_parallel_size; ranks > 1)
    log.write(LogLevel::info, "ranks",
              {{"count", ranks}, {"all_reduce", std::string_view(facts.backend.all_reduce)}});
}

/// Null: no KV events are wanted.
std::unique_ptr<KvEventPublisher> make_publisher(const ServeArgs& args, ServerLog& log) {
  if (args.kv_events.endpoint.empty()) return nullptr;
  if (!args.engine.options.enable_prefix_caching)
    fail("--kv-events-endpoint: there are no events of the prefix cache with --no-enable-prefix-caching");
  auto publisher = std::make_unique<KvEventPublisher>(args.kv_events);
  log.write(LogLevel::info, "KV events",
            {{publisher->is_bound() ? "listens" : "connects", std::string_view(publisher->endpoint())},
             {"replay", std::string_view(publisher->replay_endpoint())},
             {"topic", std::string_view(args.kv_events.topic)}});
  return publisher;
}

/// False: the engine failed.
bool serve(ServeArgs& args) {
  std::signal(SIGPIPE, SIG_IGN);  // a log or a profile that nobody reads any more ends nothing
  ServerLog log(args.log_format, args.log_level);
  fit_descriptors(args.server.limits, log);
  ModelSet models = args.models.open(args.engine, args.server, log);
  const std::unique_ptr<KvEventPublisher> kv_events = make_publisher(args, log);
  std::shared_ptr<Engine> engine = args.engine.make_engine();
  if (kv_events && !engine->options().enable_prefix_caching) {
    fail("--kv-events-endpoint: there are no events of the prefix cache, which {} does not have",
         engine->config().name);
  }
  if (kv_events) engine->set_kv_event_sink(*kv_events);
  args.server.kv_events = kv_events.get();
  const ProfileSession profile(args.profile, *engine);
  if (args.profile.wants_counters()) args.server.counters = &profile.counters();
  ServingFacts facts{
      .url = "",
      .model_name = "",
      .model = engine->model().name(),
      .backend = engine->backend_info(),
      .options = engine->options(),
      .state_slot_bytes = static_cast<int64_t>(RecurrentStatePool::slot_bytes(engine->config())),
      .max_queue_size = args.server.max_queue_size,
      .needs_key = !args.server.access.api_keys.empty()};
  if (args.engine.model.starts_with(HubName::kPrefix) && args.server.served_model_names.empty())
    args.server.served_model_names = {args.engine.model.substr(HubName::kPrefix.size())};
  for (const PooledModel& model : models.models)
    facts.all_models.push_back(model.context.served_model_names.front());
  facts.max_loaded = models.max_loaded;
  if (models.models.empty()) models.models.emplace_back();
  models.models.front().engine = args.models.are_several() ? std::move(engine) : engine;
  EventLoop loop;
  Server server(loop, std::move(models), log, args.server);
  const auto end_in_order = [&, is_first = true](int signal) mutable {
    if (!std::exchange(is_first, false)) std::_Exit(128 + signal);
    server.shut_down();
  };
  // mpirun passes SIGUSR1 on and leaves the time to end in order; after SIGTERM it kills its processes within two seconds.
  args.engine.processes() != nullptr ? loop.on_signals({SIGTERM, SIGINT, SIGUSR1}, end_in_order)
                                     : loop.on_signals({SIGTERM, SIGINT}, end_in_order);
  facts.url = server.url();
  facts.model_name = server.model_name();
  announce(args, facts, log);
  const bool ended_well = server.run();
  loop.reset_signals();  // from here on a signal ends the process at once
  if (ended_well && engine && engine->disk_counts() != nullptr) {
    engine->save_kv_cache(args.server.shutdown_timeout);
    log.write(LogLevel::info, "KV blocks on disk",
              {{"written", engine->disk_counts()->written}, {"dropped", engine->disk_counts()->dropped}});
  }
  if (server.engine_hangs()) {
    log.close();
    std::_Exit(1);  // nothing else ends a step or a load that hangs
  }
  return ended_well;
}

constexpr const char* kHttpGroup = "HTTP";

/// An option that may be repeated, with one value each time.
CLI::Option* add_repeated(const OptionGroup& group, const std::string& name, std::vector<std::string>& into,
                          const std::string& description) {
  return add_option(group, name, into, description)->allow_extra_args(false);
}

void add_access_options(const OptionGroup& group, ServeArgs& args) {
  AccessOptions& access = args.server.access;
  add_repeated(group, "--api-key", access.api_keys,
               "key that clients must send as Authorization: Bearer KEY; repeat the option for several keys "
               "(default: clients need none)")
      ->envname("MINFER_API_KEY");
  const auto take_keys = [&access](const std::string& path) {
    for (std::string& key : read_api_keys(path))
      access.api_keys.push_back(std::move(key));
  };
  add_taken(group, "--api-key-file", take_keys,
            "file with further keys, one a line; lines that begin with # are ignored", CLI::ExistingFile);
  add_repeated(
      group, "--allowed-hosts", access.allowed_hosts,
      "comma-separated names under which clients reach this server, besides localhost and addresses; '*' "
      "allows any. Needed behind a proxy, and against DNS rebinding if --host is not 127.0.0.1")
      ->delimiter(',');
  add_repeated(
      group, "--cors-origins", access.cors_origins,
      "comma-separated origins whose web pages may use this server, e.g. https://app.example; '*' allows any")
      ->delimiter(',');
}

void add_http_options(CLI::App& command, ServeArgs& args) {
  const OptionGroup group{command, kHttpGroup};
  ServerOptions& server = args.server;
  add_with_default(
      group, "--host", server.host,
      "address to listen on. 127.0.0.1 serves this machine only and turns away web pages of other sites; "
      "0.0.0.0 serves every machine that can reach this one");
  add_with_default(group, "--port", server.port, "port to listen on (0: any free port; the log names it)");
  add_access_options(group, args);
  add_option(group, "--served-model-name", server.served_model_names,
             "name, or names, that clients give as `model` (default: minfer-demo, or the file's name, or "
             "ORG/REPO[:QUANT]); "
             "'*' takes any. With several models: a name for each, in their order");
  add_flag(group, "--strict-fields", server.refuses_unknown_fields,
           "answer requests that have unknown fields with 400 (default: such fields are ignored, and named "
           "in the log and in the header x-minfer-ignored-fields)");
  add_with_default(
      group, "--max-queue-size", server.max_queue_size,
      "sequences that may wait beside the running ones; requests beyond that are answered with 429",
      CLI::NonNegativeNumber);
  add_with_default(
      group, "--max-connections", server.limits.max_connections,
      "most open connections; beyond that, idle ones are closed, then all but /health is answered with 503",
      CLI::PositiveNumber);
  add_with_default(group, "--max-body-bytes", server.limits.body_bytes,
                   "largest request body (a larger one is answered with 413), and conversation of "
                   "previous_response_id (400)",
                   CLI::PositiveNumber);
  add_with_default(group, "--max-answer-bytes", server.max_answer_bytes,
                   "most JSON in the answer to a request, estimated from n, max_tokens and logprobs; more is "
                   "answered with 400",
                   CLI::PositiveNumber);
  add_seconds(group, "--keep-alive-timeout", server.limits.idle_timeout, 0.1,
              "seconds that an idle connection stays open");
  add_seconds(group, "--shutdown-timeout", server.shutdown_timeout, 0.0,
              "seconds that running requests have to finish after SIGTERM or Ctrl-C; a second signal "
              "ends them at once");
  add_seconds(group, "--stall-timeout", server.stall_timeout, 0.1,
              "seconds without progress after which /health is no longer 200");
  add_flag(group, "--access-log,!--no-access-log", server.access_log,
           "log a line for each request (default)");
  const auto take_format = [&args](const std::string& name) {
    args.log_format = name == "json" ? LogFormat::json : LogFormat::text;
  };
  add_taken(group, "--log-format", take_format, "text or json", one_of({"text", "json"}), Default{"text"});
  const auto take_level = [&args](const std::string& name) {
    args.log_level = static_cast<LogLevel>(std::ranges::find(kLogLevels, name) - kLogLevels.begin());
  };
  add_taken(group, "--log-level", take_level, "lowest level to log: debug, info, warning, error or off",
            one_of(kLogLevels), Default{"info"});
}

void add_kv_event_options(CLI::App& command, ServeArgs& args) {
  const OptionGroup group{command, "KV events"};
  KvEventOptions& events = args.kv_events;
  CLI::Option* endpoint =
      add_option(group, "--kv-events-endpoint", events.endpoint,
                 "publish which blocks the prefix cache stores and removes, over ZeroMQ in vLLM's format, "
                 "for routers that send a request to a server with its prefix (llm-d, Dynamo). tcp://*:5557 "
                 "listens on every address, for any client; without a * it connects to tcp://HOST:PORT. "
                 "Events reveal prompts, except those with a cache_salt (default: none)",
                 Shown{"ENDPOINT"});
  add_option(group, "--kv-events-replay-endpoint", events.replay_endpoint,
             "address that answers subscribers that missed events, from the last 10,000 batches, e.g. "
             "tcp://*:5558 (default: none)",
             Shown{"ENDPOINT"}, endpoint);
  add_option(group, "--kv-events-topic", events.topic,
             "topic that each message begins with and subscribers choose by; llm-d expects kv@POD@MODEL "
             "(default: empty)",
             Shown{"TEXT"}, endpoint);
  add_option(group, "--kv-events-format", events.format,
             "map (fields by name, as in vLLM since 0.24) or array (fields by place, for older routers)",
             one_of(kKvEventFormats), Shown{"FORMAT [map]"}, endpoint);
  add_option(group, "--prefix-hash-key", args.engine.options.prefix_hash_key,
             "seed of the hashes of blocks. Servers with the same seed give equal prefixes equal hashes in "
             "their events, as some routers want. Clients must not know it (default: drawn at the start)",
             Shown{"NUMBER"})
      ->envname("MINFER_PREFIX_HASH_KEY");
}

void add_kv_disk_options(CLI::App& command, KvDiskOptions& disk) {
  const OptionGroup group{command, EngineArgs::kModelGroup};
  CLI::Option* folder =
      add_option(group, "--kv-cache-dir", disk.folder,
                 "folder for KV blocks that fall out of memory, or are in memory at the end, so that prompts "
                 "that begin alike need not be computed again, also after a restart. Its files reveal "
                 "prompts; only their owner can read them (default: none)",
                 Shown{"FOLDER"});
  add_option(group, "--kv-cache-disk", disk.max_bytes,
             "most bytes of these files, of all models; the least recently used go first",
             CLI::AsSizeValue(false), Shown{"SIZE [20GiB]"}, folder);
}

void add_answer_options(const OptionGroup& group, AnswerFormatOptions& format) {
  const CLI::Validator is_known(
      [](const std::string& name) {
        const bool known = name == "auto" || name == "none" || find_chat_format(name) != nullptr;
        return known ? std::string{}
                     : fmt::format("expected auto, none or one of {}", fmt::join(chat_format_names(), ", "));
      },
      "");
  add_option(group, "--tool-call-parser", format.tool_call_parser,
             "format in which the model writes tool calls: auto (the one in its chat template), none, or a "
             "name such as hermes, llama3_json, mistral, gpt_oss",
             is_known, Shown{"FORMAT [auto]"});
  add_option(group, "--reasoning-parser", format.reasoning_parser,
             "format in which the model writes its thoughts, which answers then keep apart: the same names, "
             "or think for <think> alone",
             is_known, Shown{"FORMAT [auto]"});
}

}  // namespace

void add_serve_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "serve", "Serve a model to OpenAI clients over HTTP, with metrics and a live page of its profile");
  const auto args = std::make_shared<ServeArgs>();
  add_http_options(*command, *args);
  args->models.add_to(*command, args->engine);
  args->engine.add_serving_options(*command);
  args->engine.add_policy_option(*command);
  const OptionGroup serving{*command, EngineArgs::kServingGroup};
  add_option(serving, "--chat-template", args->server.chat_template,
             "file with the chat template, in Jinja (default: the model's own)", existing_file());
  add_answer_options(serving, args->server.answer_format);
  add_kv_event_options(*command, *args);
  add_kv_disk_options(*command, args->engine.options.kv_disk);
  args->profile.add_to(*command);
  args->profile.add_counters_every(*command);
  command->footer(
      "Examples:\n"
      "  minfer serve\n"
      "  minfer serve llama.gguf --port 8001 --max-num-seqs 64\n"
      "  minfer serve --model llama.gguf --model qwen.gguf --max-loaded 1\n"
      "  minfer serve --host 0.0.0.0 --api-key sk-1234 --served-model-name gpt-4o\n"
      "To ask the first of them:\n"
      "  curl http://127.0.0.1:8000/v1/completions -d '{\"model\":\"minfer-demo\",\"prompt\":\"Once upon a "
      "time\"}'");
  add_with_default({*command, ProfileArgs::kGroup}, "--profile-dir", args->server.profile_dir,
                   "folder for the files that POST /start_profile and /stop_profile write",
                   CLI::ExistingDirectory);
  command->callback([args] {
    if (!serve(*args)) fail("the engine has failed; see the log");
    args->engine.check_processes();
  });
}

}  // namespace minfer
