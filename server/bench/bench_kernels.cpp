#include "server/bench/bench_kernels.h"

#include <algorithm>

#include "kernels/cuda/product/matmul_search.h"
#include "server/bench/bench_speed.h"
#include "server/bench/kernel_operands.h"
#include "server/commands/terminal.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kDefaultModel = "synthetic:llama-3.1-8b:bf16";
constexpr double kStepUs = 10'000.0;  ///< of a measured step, where that is not too many runs or too few
constexpr int64_t kLeastRuns = 3;
/// A sampling step draws once, so there are more of them.
constexpr int32_t kSamplingSteps = 5;

/// Ops of a measured step.
enum BenchOp : OpId { kInputs, kFlush, kMeasured, kResults };

/// Steps that run one case.
class CaseTimer {
 public:
  CaseTimer(KernelOperands& operands, const KernelCase& c)
      : operands_(operands), case_(c), batch_(operands.host_batch(c)), rows_(operands.sampling_rows(c)) {}

  std::vector<double> measure(int32_t repetitions) {
    const bool is_sample = case_.info.kind == OpKind::sample;
    const double estimate_us = run_step(is_sample ? 1 : 2, false).back();  // and the first calls are over
    const auto wanted = static_cast<int64_t>(kStepUs / std::max(estimate_us, 1.0));
    const int64_t runs = is_sample ? 1 : std::clamp(wanted, kLeastRuns, KernelOperands::kMostCopies);
    std::vector<double> samples_us;
    for (int32_t i = 0; i < repetitions * (is_sample ? kSamplingSteps : 1); ++i) {
      const std::vector<double> step_us = run_step(runs, true);
      // The first run of a step follows something else.
      samples_us.insert(samples_us.end(), step_us.begin() + (is_sample ? 0 : 1), step_us.end());
    }
    return samples_us;
  }

 private:
  /// The times of the runs of one step.
  std::vector<double> run_step(int64_t runs, bool capture) {
    StepStamps stamps;
    sampled_.resize(rows_.size());
    Backend& backend = operands_.backend();
    const StepArgs step{.batch = batch_,
                        .rows = rows_,
                        .inputs_op = kInputs,
                        .sample_op = kMeasured,
                        .results_op = kResults,
                        .stamps = &stamps,
                        .capture = capture};
    backend.launch_step(step, [&](const ForwardBatch& batch) {
      if (!operands_.exceed_cache(case_)) operands_.flush_cache(kFlush);
      Tensor logits;
      for (int64_t run = 0; run < runs; ++run)
        logits = operands_.run(case_, batch, kMeasured);
      return logits;
    });
    backend.finish_step(sampled_);
    std::vector<double> times_us;
    for (size_t i = 0; i < stamps.ops.size(); ++i) {
      const int64_t end_ns = i + 1 < stamps.ops.size() ? stamps.ops[i + 1].begin_ns : stamps.end_ns;
      if (stamps.ops[i].op == kMeasured)
        times_us.push_back(static_cast<double>(end_ns - stamps.ops[i].begin_ns) * 1e-3);
    }
    return times_us;
  }

  KernelOperands& operands_;
  const KernelCase& case_;
  ForwardBatch batch_;
  std::span<const SamplingRow> rows_;
  std::vector<SampledToken> sampled_;
};

std::unique_ptr<ModelSource> open_source(const std::string& model, std::string_view op) {
  if (!model.starts_with(kSyntheticPrefix)) return open_model(model);
  const std::vector<std::string> names =
      kernel_tensors(*make_synthetic_model(model, [](auto) { return false; }), op);
  return make_synthetic_model(model,
                              [&](std::string_view tensor) { return std::ranges::count(names, tensor) > 0; });
}

void show_progress(const KernelCase& c) {
  if (!is_terminal(stderr)) return;
  fmt::print(stderr, "\r\x1b[K{} {}, M {}", c.info.name, c.shape, c.tokens);
  std::fflush(stderr);
}

}  // namespace

double KernelResult::median_us() const {
  return median_of(samples_us);
}

double KernelBench::roofline(const KernelResult& result) const {
  const KernelWork work = result.kernel.work();
  return ceilings.floor_us(work.bytes(), work.flops) / result.median_us();
}

KernelBench run_kernel_bench(const KernelBenchOptions& options, const EngineOptions& engine) {
  KernelBench bench{.model = options.model.empty() ? kDefaultModel : options.model,
                    .backend = {},
                    .ceilings = {},
                    .results = {}};
  std::vector<std::string> ops = options.ops;
  if (ops.empty()) {
    for (const std::string_view op : kernel_op_names(open_source(bench.model, "")->config()))
      ops.emplace_back(op);
  }
  for (const std::string& op : ops) {
    const std::unique_ptr<ModelSource> source = open_source(bench.model, op);
    std::unique_ptr<Backend> backend = make_backend(engine, *source);
    const BackendInfo info = bench.backend = backend->info();
    bench.ceilings = device_ceilings(info, MINFER_VERSION);  // before the weights take the memory
    const KernelTypes types{info.activation_dtype, choose_kv_dtype(engine, info)};
    std::vector<KernelCase> cases =
        list_kernel_cases(source->config(), types, op, options.sizes, info.asynchronous);
    KernelOperands operands(*source, std::move(backend), std::move(cases), engine.block_size);
    const std::vector<std::string> tensors = kernel_tensors(*source, op);
    for (const KernelCase& c : operands.cases()) {
      show_progress(c);
      KernelResult& result =
          bench.results.emplace_back(KernelResult{.kernel = c, .samples_us = {}, .cublas_us = {}});
      result.weight_dtype =
          tensors.empty() ? info.activation_dtype : source->find_tensor(tensors.front())->dtype;
      result.samples_us = CaseTimer(operands, c).measure(options.repetitions);
      const std::vector<cuda::Product> products = operands.products(c);
      if (!products.empty()) result.cublas_us = cuda::fastest_matmul_us(products);
    }
  }
  if (is_terminal(stderr)) fmt::print(stderr, "\r\x1b[K");
  return bench;
}

Table kernel_table(const KernelBench& bench) {
  Table table{.title = "ops by themselves, cold caches",
              .columns = {"op", "shape", "type", "M", "us", "p5-p95", "GB/s", "TFLOP/s", "of roofline",
                          "cuBLASLt us"},
              .rows = {}};
  for (const KernelResult& result : bench.results) {
    const KernelWork work = result.kernel.work();
    const double us = result.median_us();
    const bool compute_bound = bench.ceilings.compute_bound(work.bytes(), work.flops);
    table.rows.push_back({result.kernel.info.name, result.kernel.shape,
                          std::string(name(result.weight_dtype)), std::to_string(result.kernel.tokens),
                          three_digits(us),
                          fmt::format("{}-{}", three_digits(percentile_of(result.samples_us, 0.05)),
                                      three_digits(percentile_of(result.samples_us, 0.95))),
                          three_digits(static_cast<double>(work.bytes()) * 1e-3 / us),
                          three_digits(static_cast<double>(work.flops) * 1e-6 / us),
                          bench.ceilings.known() ? fmt::format("{:.0f} % {}", 100.0 * bench.roofline(result),
                                                               compute_bound ? "compute" : "memory")
                                                 : "",
                          result.cublas_us ? three_digits(*result.cublas_us) : ""});
  }
  return table;
}

Json kernel_json(const KernelBench& bench) {
  Json objects = Json::array();
  for (const KernelResult& result : bench.results) {
    const KernelWork work = result.kernel.work();
    const double us = result.median_us();
    Json json;
    json["build_number"] = MINFER_VERSION;
    json["backends"] = bench.backend.name;
    json["device"] = bench.backend.device;
    json["model"] = bench.model;
    json["op"] = result.kernel.info.name;
    json["shape"] = result.kernel.shape;
    json["type"] = name(result.weight_dtype);
    json["m"] = result.kernel.tokens;
    json["sequences"] = result.kernel.sequences;
    json["context"] = result.kernel.context;
    json["us"] = us;
    json["us_p5"] = percentile_of(result.samples_us, 0.05);
    json["us_p95"] = percentile_of(result.samples_us, 0.95);
    json["samples"] = result.samples_us.size();
    json["bytes"] = work.bytes();
    json["flops"] = work.flops;
    json["gbps"] = static_cast<double>(work.bytes()) * 1e-3 / us;
    json["tflops"] = static_cast<double>(work.flops) * 1e-6 / us;
    json["roofline"] = bench.roofline(result);
    json["bound"] = bench.ceilings.compute_bound(work.bytes(), work.flops) ? "compute" : "memory";
    json["cublaslt_us"] = result.cublas_us ? Json(*result.cublas_us) : Json();
    objects.push_back(std::move(json));
  }
  return objects;
}

}  // namespace minfer
