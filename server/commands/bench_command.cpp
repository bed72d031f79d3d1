#include <filesystem>

#include "models/decoder/weights/quantise.h"
#include "profiling/record/machine.h"
#include "server/bench/bench_kernels.h"
#include "server/bench/bench_output.h"
#include "server/bench/bench_speed.h"
#include "server/commands/args/engine_args.h"
#include "server/commands/args/options.h"
#include "server/commands/commands.h"
#include "server/commands/load_command.h"
#include "server/hub/hub.h"
#include "server/serving/profile/profile_session.h"
#include "server/terminal/terminal.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSpeedGroup = "Speed tests (as llama-bench; the default)";
constexpr const char* kKernelsGroup = "Ops by themselves (chosen by --kernels; -r measured steps of each)";

struct BenchArgs {
  EngineArgs engine;
  ProfileArgs profile;
  SpeedOptions speed;
  LoadArgs load;
  std::string format = "table";
  bool profile_overhead = false;
  bool kernels = false;
  KernelBenchOptions kernel;
};

/// Type of most weight bytes, total bytes and number of parameters, as they are loaded.
struct ModelSize {
  std::string type;
  int64_t bytes = 0;
  int64_t parameters = 0;
};

ModelSize size_of(const Engine& engine) {
  const ModelSource& model = engine.model();
  ModelSize size;
  std::map<DType, size_t> bytes_of_type;
  for (const auto& tensor : tensors_to_load(model.tensors(), engine.options().quantization, model.name())) {
    bytes_of_type[tensor.loaded_dtype()] += tensor.loaded_bytes();
    size.bytes += static_cast<int64_t>(tensor.loaded_bytes());
    size.parameters += tensor.count * tensor.rows * tensor.cols;
  }
  const auto most =
      std::ranges::max_element(bytes_of_type, {}, [](const auto& entry) { return entry.second; });
  size.type = fmt::format("{} {}", model.config().architecture.name, name(most->first));
  return size;
}

/// llama-bench's fields that have a meaning here.
Json speed_json(const Engine& engine, const BackendInfo& backend, const SpeedResult& result) {
  const ModelSize size = size_of(engine);
  std::vector<double> times(result.samples_ns.begin(), result.samples_ns.end());
  const std::vector<double> speeds = result.tokens_per_second();
  Json json;
  json["build_number"] = MINFER_VERSION;
  json["cpu_info"] = processor_name();
  json["backends"] = backend.name;
  json["device"] = backend.device;
  json["model_filename"] = engine.model().name();
  json["model_type"] = size.type;
  json["model_size"] = size.bytes;
  json["model_n_params"] = size.parameters;
  json["n_batch"] = engine.options().max_num_batched_tokens;
  json["n_threads"] = backend.threads;
  json["type_k"] = name(*engine.options().kv_cache_dtype);
  json["type_v"] = name(*engine.options().kv_cache_dtype);
  json["n_prompt"] = result.prompt_tokens;
  json["n_gen"] = result.generated_tokens;
  json["n_depth"] = result.depth;
  json["n_parallel"] = result.parallel;
  json["tensor_parallel_size"] = engine.options().tensor_parallel_size;
  json["avg_ns"] = mean_of(times);
  json["stddev_ns"] = deviation_of(times);
  json["avg_ts"] = mean_of(speeds);
  json["stddev_ts"] = deviation_of(speeds);
  json["median_ts"] = median_of(speeds);
  json["samples_ns"] = result.samples_ns;
  json["samples_ts"] = speeds;
  return json;
}

void run_speed(const BenchArgs& args) {
  EngineArgs engine_args = args.engine;
  engine_args.options.enable_prefix_caching = false;  // every repetition computes all of its prompt
  std::vector<SpeedResult> results = list_speed_tests(args.speed);
  const std::unique_ptr<Engine> engine = engine_args.make_engine();
  if (const std::string how = engine->backend_info().all_reduce; !how.empty())
    print_notice(fmt::format("minfer: {}\n", how));
  warm_up(*engine, results);
  const ProfileSession profile(args.profile, *engine);  // after the warm-up: its steps are not the run's
  measure(*engine, results, args.speed.repetitions);

  const ModelSize size = size_of(*engine);
  const BackendInfo backend = engine->backend_info();
  Table table{.columns = {"model", "size", "params", "backend", "threads", "test", "t/s"}};
  Json objects = Json::array();
  for (const SpeedResult& result : results) {
    const std::vector<double> speeds = result.tokens_per_second();
    objects.push_back(speed_json(*engine, backend, result));
    table.add(size.type, fmt::format("{:.2f} MiB", static_cast<double>(size.bytes) / (1 << 20)),
              fmt::format("{:.2f} M", static_cast<double>(size.parameters) * 1e-6), backend.name,
              backend.threads, result.label(),
              fmt::format("{:.2f} ± {:.2f}", mean_of(speeds), deviation_of(speeds)));
  }
  print_results(objects, table, args.format);
}

/// Generates with and without step records in turn.
void run_overhead(const BenchArgs& args, bool with_prompts) {
  SpeedOptions speed = args.speed;
  if (!with_prompts) speed.prompt_tokens.clear();
  const std::vector<SpeedResult> tests = list_speed_tests(speed);
  const std::unique_ptr<Engine> engine = args.engine.make_engine();
  const BackendInfo backend = engine->backend_info();
  const int32_t turns = std::max(20, args.speed.repetitions);
  Json objects = Json::array();
  Table table{.title = "cost of recording every step",
              .columns = {"test", "turns", "recorded t/s", "unrecorded t/s", "overhead", "quartiles"}};
  for (const SpeedResult& test : tests) {
    const OverheadResult result = measure_recording_overhead(*engine, test, turns);
    const std::vector<double> overheads = result.overheads();
    const double low = percentile_of(overheads, 0.25), median = median_of(overheads),
                 high = percentile_of(overheads, 0.75);
    objects.push_back({{"build_number", MINFER_VERSION},
                       {"backends", backend.name},
                       {"device", backend.device},
                       {"model_filename", engine->model().name()},
                       {"n_prompt", test.prompt_tokens},
                       {"n_gen", test.generated_tokens},
                       {"n_depth", test.depth},
                       {"n_parallel", test.parallel},
                       {"turns", turns},
                       {"median_recorded_ts", median_of(result.recorded)},
                       {"median_unrecorded_ts", median_of(result.unrecorded)},
                       {"overhead", median},
                       {"overhead_p25", low},
                       {"overhead_p75", high},
                       {"samples_overhead", overheads}});
    table.add(test.label(), turns, fmt::format("{:.2f}", median_of(result.recorded)),
              fmt::format("{:.2f}", median_of(result.unrecorded)), fmt::format("{:.2f} %", 100.0 * median),
              fmt::format("{:.2f} to {:.2f} %", 100.0 * low, 100.0 * high));
  }
  print_results(objects, table, args.format);
}

void run_kernels(const BenchArgs& args) {
  refuse_launcher("--kernels");
  if (const int32_t ranks = args.engine.options.tensor_parallel_size; ranks > 1) {
    fail(
        "--tensor-parallel-size: {}, expected 1: --kernels measures the ops of one device (hardware counters "
        "repeat an op, and ops between ranks cannot be repeated)",
        ranks);
  }
  KernelBenchOptions options = args.kernel;
  options.model = local_model(args.engine.model);
  options.repetitions = args.speed.repetitions;
  const KernelBench bench = run_kernel_bench(options, args.engine.engine_options());
  print_results(kernel_json(bench), kernel_table(bench), args.format);
  if (!bench.counters_error.empty()) print_notice(fmt::format("minfer: warning: {}\n", bench.counters_error));
}

/// Throws Error for an option on the command line that would change nothing in this kind of test: one of
/// `groups`, but for the `exceptions`.
void refuse_options(const CLI::App& command, const std::string& test, const std::vector<std::string>& groups,
                    const std::vector<std::string>& exceptions = {}) {
  for (const CLI::Option* option : command.get_options()) {
    const auto is_it = [&](const std::string& name) { return option->check_name(name); };
    if (option->count() > 0 && std::ranges::count(groups, option->get_group()) > 0 &&
        std::ranges::none_of(exceptions, is_it))
      fail("{}: not an option of {}", option->get_name(), test);
  }
}

void refuse_prefix_caching(const CLI::App& command) {
  if (command.get_option("--enable-prefix-caching")->count() > 0) {
    fail(
        "--enable-prefix-caching: speed tests compute every prompt whole; it applies to load tests "
        "(--num-prompts, --dataset, --replay)");
  }
}

void run_load_test(BenchArgs& args, const CLI::App& command) {
  args.load.workload.seed = args.engine.options.seed;
  if (!args.load.is_remote()) {
    refuse_options(command, "load tests", {kSpeedGroup, kKernelsGroup});
    args.load.resolve();
    std::error_code ignored;
    if (std::filesystem::equivalent(args.load.workload.replay, args.profile.out, ignored))
      fail("--profile-out {}: is the profile that --replay reads", args.profile.out);
    return run_engine_load_test(args.load, args.engine, args.profile, args.format);
  }
  refuse_launcher("load tests of a server");
  refuse_options(
      command, "load tests of a server",
      {kSpeedGroup, kKernelsGroup, EngineArgs::kModelGroup, EngineArgs::kServingGroup, ProfileArgs::kGroup},
      {"--model", "--seed", "--stream-interval"});
  args.load.remote.model = args.engine.model;
  args.load.resolve();
  if (command.get_option("--stream-interval")->count() > 0)
    args.load.remote.body["stream_interval"] = args.engine.options.stream_interval;
  run_server_load_test(args.load, args.format);
}

/// Finds out which kind of test the options ask for.
void run_bench(BenchArgs& args, const CLI::App& command) {
  if (command.get_option("--scheduling-policy")->count() > 0 && !args.load.has_priorities())
    throw CLI::RequiresError("--scheduling-policy", "--dataset or --replay");
  if (args.kernels) {
    refuse_options(command, "--kernels",
                   {kSpeedGroup, LoadArgs::kGroup, LoadArgs::kServerGroup, ProfileArgs::kGroup}, {"-r"});
    return run_kernels(args);
  }
  if (args.profile_overhead) {
    refuse_options(command, "--profile-overhead",
                   {LoadArgs::kGroup, LoadArgs::kServerGroup, ProfileArgs::kGroup});
    refuse_prefix_caching(command);
    return run_overhead(args, command.get_option("--n-prompt")->count() > 0);
  }
  if (args.load.chosen()) return run_load_test(args, command);
  refuse_options(command, "speed tests", {LoadArgs::kGroup, LoadArgs::kServerGroup});
  refuse_prefix_caching(command);
  run_speed(args);
}

}  // namespace

void add_bench_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("bench", "Measure speed: prompt and generation alone, or throughput under load");
  auto args = std::make_shared<BenchArgs>();
  const OptionGroup speed{*command, kSpeedGroup};
  add_list(speed, "-p,--n-prompt", args->speed.prompt_tokens,
           "prompt lengths to test, e.g. 512,2048 (0: none)", CLI::NonNegativeNumber)
      ->capture_default_str();
  add_list(speed, "-n,--n-gen", args->speed.generated_tokens, "generation lengths to test (0: none)",
           CLI::NonNegativeNumber)
      ->capture_default_str();
  add_list(speed, "--pg,--prompt-and-gen", args->speed.prompt_and_generated,
           "tests of prompt and generation together, two numbers each: 512,64 processes 512 tokens, then "
           "generates 64; with --parallel, prompts and decoding share steps",
           CLI::PositiveNumber);
  add_with_default(speed, "-d,--n-depth", args->speed.depth,
                   "tokens of context before a generation test begins (0: one)", CLI::NonNegativeNumber);
  add_list(speed, "--parallel", args->speed.parallel, "sequences at once; every test runs with each number",
           CLI::PositiveNumber)
      ->capture_default_str();
  add_with_default(speed, "-r,--repetitions", args->speed.repetitions, "how often each test is repeated",
                   CLI::PositiveNumber);
  add_flag(speed, "--profile-overhead", args->profile_overhead,
           "measure the cost of recording steps: generate -n tokens, and process prompts if -p is given, in "
           "turns with recording and without anything launched or kept for it, at least 20 times each");
  const OptionGroup kernels{*command, kKernelsGroup};
  CLI::Option* by_kernel = add_flag(kernels, "--kernels", args->kernels,
                                    "measure each op of the model alone, over many sizes and with "
                                    "cold caches (default model: synthetic:llama-3.1-8b:bf16)");
  add_list(kernels, "--op", args->kernel.ops,
           "these ops only, by their names in profiles, e.g. qkv,attention_decode (all norms: rms_norm)",
           by_kernel);
  add_flag(kernels, "--counters", args->kernel.counters,
           "also read the GPU's hardware counters of one run: bytes moved, occupancy, L2 hits, warp stalls",
           by_kernel);
  add_list(kernels, "--tokens", args->kernel.sizes.tokens,
           "tokens of a step; sequences for attention_decode (default: powers of two)",
           CLI::Range(1, 1 << 20), by_kernel);
  add_list(kernels, "--context", args->kernel.sizes.contexts,
           "cached tokens of a sequence, for attention_decode", CLI::Range(1, 1 << 20), by_kernel);
  args->load.add_to(*command);
  args->engine.add_policy_option(*command);
  add_with_default({*command}, "-o,--output", args->format, "table, json, jsonl, csv or md",
                   one_of({"table", "json", "jsonl", "csv", "md"}));
  args->engine.add_model_options(*command);
  args->engine.add_serving_options(*command);
  args->engine.add_synthetic_acceptance(*command);
  args->profile.add_to(*command);
  command->footer(fmt::format(
      "Synthetic models (synthetic:NAME[:TYPE], random weights): {}.\n\n"
      "Examples:\n"
      "  minfer bench -p 512 -n 128 -r 5\n"
      "  minfer bench llama.gguf -p 128,256 -n 32 -r 2 -o md\n"
      "  minfer bench synthetic:tiny:bf16 --quantization fp8 -p 128 -n 32 -r 2\n"
      "  minfer bench synthetic:tiny:q4_k_m --num-prompts 32 --input-len 128 --output-len 32\n"
      "  minfer bench --kernels -m synthetic:tiny:q8_0 --op qkv,attention_decode --tokens 1,8 --context 64 "
      "-r 2\n"
      "  minfer bench --base-url http://127.0.0.1:8000 --num-prompts 16 --request-rate 20 --output-len 32",
      fmt::join(synthetic_model_names(), ", ")));
  command->callback([args, command] { run_bench(*args, *command); });
}

}  // namespace minfer
