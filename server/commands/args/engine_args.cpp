#include "server/commands/args/engine_args.h"

#include <algorithm>
#include <csignal>

#include "kernels/base/error.h"
#include "kernels/comm/launcher.h"
#include "models/decoder/weights/model_source.h"
#include "models/decoder/weights/quantise.h"
#include "server/hub/hub.h"
#include "server/terminal/terminal.h"

namespace minfer {
namespace {

template <class Enum>
using NamedValues = std::vector<std::pair<std::string, Enum>>;

const NamedValues<DeviceChoice> kDevices{
    {"auto", DeviceChoice::automatic}, {"cpu", DeviceChoice::cpu}, {"cuda", DeviceChoice::cuda}};
const NamedValues<AllReduceChoice> kAllReduceChoices{
    {"auto", AllReduceChoice::automatic}, {"nccl", AllReduceChoice::nccl}, {"peer", AllReduceChoice::peer}};
const NamedValues<SchedulingPolicy> kPolicies{{"fcfs", SchedulingPolicy::fcfs},
                                              {"priority", SchedulingPolicy::priority},
                                              {"shortest", SchedulingPolicy::shortest}};
const NamedValues<SpeculationMethod> kMethods{{"draft", SpeculationMethod::draft},
                                              {"mtp", SpeculationMethod::mtp},
                                              {"ngram", SpeculationMethod::ngram},
                                              {"off", SpeculationMethod::off}};

void show_loading(size_t done, size_t total) {
  show_progress(done == total ? "" : fmt::format("loading weights {}/{}", done, total));
}

LogitBias parse_bias(std::string_view text) {
  const size_t equals = std::min(text.find('='), text.size());
  const auto token = parse_number<decltype(LogitBias::token)>(text.substr(0, equals));
  const auto bias = parse_number<decltype(LogitBias::bias)>(text.substr(std::min(equals + 1, text.size())));
  if (!token || !bias) fail("--logit-bias: \"{}\" is not TOKEN=BIAS, e.g. 42=-5.5", text);
  return {*token, *bias};
}

}  // namespace

void EngineArgs::add_model_options(CLI::App& command) {
  add_model_argument({command, kModelGroup}, model);
  add_device_options(command);
}

void EngineArgs::add_device_options(CLI::App& command) {
  const OptionGroup group{command, kModelGroup};
  add_option(group, "--device", options.device, "where to run: auto (a GPU if there is one), cpu or cuda",
             one_of(kDevices), Shown{"DEVICE [auto]"});
  add_taken(
      group, "--dtype", [this](const std::string& text) { options.dtype = dtype_from_name(text); },
      "type of activations on a GPU: auto (f32 if all weights are f32, else bf16), bf16, or f32 "
      "(slower; nothing is rounded below f32). The CPU always uses f32",
      one_of({"auto", "bf16", "f32"}), Default{"auto"});
  add_quantization(command, options.quantization);
  add_with_default(group, "--gpu-memory-utilization", options.gpu_memory_utilization,
                   "share of the GPU's memory for weights, workspace and KV cache");
  add_with_default(group, "-t,--threads", options.threads, "threads of the CPU backend (0: one a core)");
  ranks_option_ =
      add_option(group, "--tensor-parallel-size,--tp", options.tensor_parallel_size,
                 "GPUs that share the model (on the CPU: threads that stand for GPUs and share --threads). "
                 "Under mpirun or srun: the number of processes, each with one GPU of its host",
                 Shown{"N [1]"});
  add_option(group, "--all-reduce", options.all_reduce,
             "how GPUs sum their partial results (all-reduce): auto (the faster way for each size, measured "
             "at the start), peer (minfer's kernels, through each other's memory) or nccl",
             one_of(kAllReduceChoices), Shown{"HOW [auto]"});
  add_option(group, "--rank-timeout", options.rank_timeout_s,
             "seconds that a GPU waits for another before minfer ends (0: 5, on the CPU 60)",
             Shown{"SECONDS [0]"});
  add_with_default(
      group, "--max-model-len", options.max_model_len,
      "most tokens of prompt and output together (0: the model's context, or what the KV cache holds)");
  add_with_default(group, "--max-num-batched-tokens", options.max_num_batched_tokens,
                   "token budget of a step");
  add_with_default(group, "--block-size", options.block_size, "tokens of a KV block");
  add_with_default(group, "--num-blocks", options.num_blocks, "KV blocks (0: from --kv-cache-memory)");
  add_option(
      group, "--kv-cache-memory", options.kv_cache_bytes,
      "bytes of the KV cache, e.g. 2GiB (0: what --gpu-memory-utilization leaves; on the CPU a quarter "
      "of the free memory)",
      CLI::AsSizeValue(false), Shown{"SIZE [0]"});
  const auto take_kv_type = [this](const std::string& text) {
    options.kv_cache_dtype = text.starts_with("fp8") ? DType::f8_e4m3 : dtype_from_name(text);
  };
  add_taken(group, "--kv-cache-dtype", take_kv_type,
            "type of the KV cache: auto (as activations: f32 on the CPU, bf16 on a GPU), bf16, f16, "
            "f32 (on a GPU only with --dtype f32) or fp8 (only on a GPU, without latent attention)",
            one_of({"auto", "f32", "bf16", "f16", "fp8", "fp8_e4m3"}, true), Default{"auto"});
}

void EngineArgs::add_quantization(CLI::App& command, std::optional<DType>& quantization) {
  std::vector<std::string> names{"none"};
  for (const DType type : kQuantizations)
    names.emplace_back(name(type));
  const auto take = [&quantization](const std::string& text) {
    for (const DType type : kQuantizations)
      if (name(type) == text) quantization = type;
  };
  add_taken({command, kModelGroup}, "--quantization", take,
            "convert the layers' F32, F16 and BF16 matrices at load: none, or fp8 (e4m3 with one "
            "scale per row; embeddings, norms, routers and the output head keep their types)",
            one_of(names), Default{"none"});
}

void EngineArgs::add_serving_options(CLI::App& command) {
  const OptionGroup group{command, kServingGroup};
  add_with_default(group, "--max-num-seqs", options.max_num_seqs, "most sequences that run at once");
  add_flag(group, "--cuda-graphs,!--no-cuda-graphs", options.cuda_graphs,
           "replay decode steps as CUDA graphs (default: on)");
  add_flag(group, "--enable-prefix-caching,!--no-enable-prefix-caching", options.enable_prefix_caching,
           "share KV blocks between prompts that begin alike (default: on)");
  add_option(group, "--num-state-copies", options.num_state_copies,
             "copies of recurrent states, for models that have these (Qwen3-Next, Qwen3.5): the prefix cache "
             "keeps one where a prompt with the same beginning may go on, and each sequence with guesses has "
             "one (default: as many as a quarter of --kv-cache-memory holds)",
             Shown{"N"});
  add_flag(group, "--enable-chunked-prefill,!--no-enable-chunked-prefill", options.enable_chunked_prefill,
           "cut long prompts into pieces that run beside decoding (default: on)");
  const auto take_target_itl = [this](const std::string& text) {
    options.target_itl_ms = parse_number<double>(text);
    if (!options.target_itl_ms && text != "auto")
      fail("--target-itl-ms: \"{}\", expected a number or auto", text);
  };
  add_taken(group, "--target-itl-ms", take_target_itl,
            "target for the milliseconds between two tokens: beside decoding, a step takes only as many "
            "prompt tokens as fit into it, judged by earlier steps; auto: the fewest with which prompts "
            "keep three quarters of their speed; 0: as many as --max-num-batched-tokens leaves",
            Shown{"MS|auto [0]"});
  add_with_default(group, "--stream-interval", options.stream_interval,
                   "tokens between two responses of a request");
  add_with_default(group, "--seed", options.seed, "seed of requests that have none");
  add_speculation_options(group);
}

void EngineArgs::add_speculation_options(const OptionGroup& group) {
  SpeculationOptions& speculation = options.speculation;
  add_option(
      group, "--speculative", speculation_method_,
      "guess tokens and check several in one step: off, ngram (guess what followed an earlier occurrence "
      "of the last tokens), draft (--speculative-model guesses) or mtp (the model's own layer for further "
      "tokens "
      "guesses, if its file has one). The output stays the same",
      one_of(kMethods),
      Shown{"METHOD [mtp if the file has such a layer, with --speculative-model draft, else off]"});
  add_option(group, "--speculative-model", draft_model_,
             "a smaller model with the same vocabulary: a GGUF file, hf:ORG/REPO[:QUANT] or "
             "synthetic:NAME[:TYPE]; or a GGUF file with an EAGLE-3 head for the model",
             Shown{"MODEL"});
  add_with_default(group, "--num-speculative-tokens", speculation.num_tokens,
                   fmt::format("most guesses of a sequence in a step (1 to {})", kMostDraftTokens));
  add_with_default(
      group, "--ngram-prompt-lookup-max", speculation.ngram_max,
      fmt::format("longest run of last tokens to look for earlier in the sequence (1 to {})", kLongestNgram));
  add_with_default(group, "--ngram-prompt-lookup-min", speculation.ngram_min,
                   "shortest run of last tokens to look for");
  add_flag(group, "--adaptive-speculation,!--no-adaptive-speculation", speculation.adaptive,
           "make only as many guesses as pay by measured times, perhaps none (default: on)");
}

void EngineArgs::add_synthetic_acceptance(CLI::App& command) {
  add_option({command, kServingGroup}, "--synthetic-acceptance-rate",
             options.speculation.synthetic_acceptance,
             "accept each guess with this chance, whatever the model says, to see how fast a synthetic model "
             "would be at this acceptance rate. The output is then not the model's",
             CLI::Range(0.0, 1.0), Shown{"CHANCE"});
}

SpeculationOptions EngineArgs::speculation() const {
  SpeculationOptions resolved = options.speculation;
  const bool has_model = !draft_model_.empty();
  resolved.method =
      speculation_method_.value_or(has_model ? SpeculationMethod::draft : SpeculationMethod::off);
  const bool is_draft = resolved.method == SpeculationMethod::draft;
  if (has_model && !is_draft) fail("--speculative-model: expected only with --speculative draft");
  if (!has_model && is_draft) fail("--speculative draft: expected with --speculative-model");
  if (resolved.synthetic_acceptance) {
    constexpr const char* kOption = "--synthetic-acceptance-rate";
    if (resolved.method == SpeculationMethod::off)
      fail("{}: expected only with --speculative ngram, draft or mtp", kOption);
    if (!model.starts_with(kSyntheticPrefix))
      fail("{}: --model \"{}\", expected synthetic:NAME", kOption, model);
  } else if (resolved.method != SpeculationMethod::off) {
    resolved.synthetic_acceptance = replayed_acceptance;
  }
  if (is_draft && is_eagle_head(local_model(draft_model_))) {
    resolved.method = SpeculationMethod::mtp;
  } else if (is_draft) {
    resolved.draft_model = open_model(local_model(draft_model_));
  }
  return resolved;
}

void EngineArgs::join() const {
  const Launch launch = read_launch();
  if (processes_ || launch.count == 1) return;
  processes_ = join_processes(launch);
  const Rank rank = processes_->rank();
  if (!rank.is_first()) {
    // A launcher passes signals on to every process: the first process obeys them and then ends the others.
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1})
      std::signal(signal, SIG_IGN);
    print_notice(fmt::format("minfer: {} of {} follows\n", processes_->name_of(rank.index), rank.count));
  }
  if (processes_->num_unwatched() > 0) {
    print_notice(fmt::format(
        "minfer: warning: {} has no connection of its own with {}: if one of them ends, the others notice "
        "only after --rank-timeout\n",
        processes_->name_of(rank.index),
        rank.is_first() ? fmt::format("{} other processes", processes_->num_unwatched()) : "rank 0"));
  }
  if (ranks_option_ != nullptr && ranks_option_->count() > 0 && options.tensor_parallel_size != rank.count) {
    told([&] {
      fail(
          "--tensor-parallel-size: {}, expected {}, the number of processes that {} started: each process is "
          "one rank with one GPU (several processes of several ranks each are not supported)",
          options.tensor_parallel_size, rank.count, launch.launcher);
    });
  }
}

void EngineArgs::check_processes() const {
  if (processes_) processes_->failure().check();
}

void refuse_launcher(const std::string& what) {
  const Launch launch = read_launch();
  if (launch.count > 1) fail("{}: runs in one process, {} started {}", what, launch.launcher, launch.count);
}

EngineOptions EngineArgs::engine_options() const {
  join();
  EngineOptions resolved = options;
  resolved.processes = processes_;
  resolved.speculation = speculation();
  return resolved;
}

void EngineArgs::add_policy_option(CLI::App& command) {
  add_option({command, kServingGroup}, "--scheduling-policy", options.policy,
             "order in which requests are served: fcfs, priority, or shortest (short prompts go in "
             "front of earlier, longer ones; fewer than n tokens go in front of a prompt of n)",
             one_of(kPolicies), Shown{"POLICY [fcfs]"});
}

std::unique_ptr<ModelSource> EngineArgs::open() const {
  join();
  return told([this] { return open_model(local_model(model)); });
}

std::unique_ptr<Engine> EngineArgs::make_engine(const LoadProgress& progress) const {
  join();
  const bool leads = !processes_ || processes_->rank().is_first();
  return told([&] {
    EngineOptions resolved = engine_options();
    SpeculationOptions& drafts = resolved.speculation;
    const bool may_draft = !speculation_method_ && drafts.method == SpeculationMethod::off &&
                           !model.starts_with(kSyntheticPrefix) && resolved.tensor_parallel_size == 1 &&
                           !resolved.processes;
    const bool has_layer = drafts.method == SpeculationMethod::mtp;
    std::unique_ptr<ModelSource> source =
        has_layer && !draft_model_.empty()
            ? open_model_with_head(local_model(model), local_model(draft_model_))
            : open_model(local_model(model), may_draft || has_layer);
    if (may_draft && source->config().has_draft_layer) {
      drafts.method = SpeculationMethod::mtp;
      drafts.is_asked_for = false;
    }
    const LoadProgress shown = leads ? show_loading : LoadProgress();
    return std::make_unique<Engine>(std::move(source), resolved, progress ? progress : shown);
  });
}

void SamplingArgs::add_to(CLI::App& command) {
  const OptionGroup group{command, "Sampling"};
  add_with_default(group, "-n,--max-tokens", params.max_tokens,
                   "tokens to generate at most (0: as many as the context takes)");
  add_with_default(group, "--min-tokens", params.min_tokens,
                   "fewest tokens to generate before an end token, stop token or stop string counts");
  add_with_default(group, "--temperature,--temp", params.temperature, "0: always the likeliest token");
  add_with_default(group, "--top-k", params.top_k, "draw from the k likeliest tokens (0: off)");
  add_with_default(group, "--top-p", params.top_p, "draw from the likeliest tokens that make up p");
  add_with_default(group, "--min-p", params.min_p, "drop tokens below p times the likeliest");
  add_with_default(group, "--repetition-penalty", params.repetition_penalty,
                   "divides positive logits of tokens seen before and multiplies negative ones");
  add_with_default(group, "--presence-penalty", params.presence_penalty,
                   "subtracted from the logit of each token generated before");
  add_with_default(group, "--frequency-penalty", params.frequency_penalty,
                   "subtracted from a token's logit for each time that it was generated before");
  // One value each time: without that, CLI11 lets a list take the prompt behind it as another value.
  const auto take_biases = [this](const std::vector<std::string>& biases) {
    for (const std::string& text : biases)
      params.logit_bias.push_back(parse_bias(text));
  };
  add_taken<std::vector<std::string>>(group, "--logit-bias", take_biases, "TOKEN=BIAS, may be repeated")
      ->allow_extra_args(false);
  add_option(group, "--stop", params.stop, "end the generation at this text, may be repeated")
      ->allow_extra_args(false);
  add_option(group, "--stop-token-ids", params.stop_token_ids,
             "end the generation at this token, may be repeated")
      ->allow_extra_args(false);
  add_flag(group, "--ignore-eos", params.ignore_eos, "go on after the model's end token");
}

}  // namespace minfer
