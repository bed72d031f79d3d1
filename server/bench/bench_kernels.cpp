#include "server/bench/bench_kernels.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "engine/options/sizes.h"
#include "engine/ranks/rank_backends.h"
#include "kernels/bench/kernel_operands.h"
#include "kernels/cuda/product/matmul_search.h"
#include "server/bench/bench_output.h"
#include "server/terminal/terminal.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

/// The counters' values as cells: bytes read, where counted, shares, and the three worst stalls.
std::vector<std::string> counter_cells(const KernelResult& result) {
  if (!result.counters) return {"", "", "", "", ""};
  const OpCounters& counters = *result.counters;
  const auto counted = static_cast<double>(result.kernel.work().bytes_read);
  std::string stalls;
  for (size_t i = 0; i < std::min<size_t>(counters.stalls.size(), 3); ++i) {
    const auto& [stall, warps] = counters.stalls[i];
    stalls += fmt::format("{}{} {}", i > 0 ? ", " : "", stall, three_digits(warps));
  }
  const auto percent = [](double share) {
    return std::isfinite(share) ? fmt::format("{:.0f} %", 100.0 * share) : std::string("not sampled");
  };
  return {counted > 0.0 ? percent(counters.read_bytes / counted) : "-", percent(counters.occupancy),
          percent(counters.l2_hit), percent(counters.tensor_active), stalls};
}

Json json_of(const OpCounters& counters) {
  Json stalls = Json::object();
  for (const auto& [stall, warps] : counters.stalls)
    stalls[stall] = warps;
  return {{"us", counters.us},
          {"read_bytes", counters.read_bytes},
          {"written_bytes", counters.written_bytes},
          {"l2_hit", counters.l2_hit},
          {"occupancy", counters.occupancy},
          {"issue_active", counters.issue_active},
          {"tensor_active", counters.tensor_active},
          {"bank_conflicts", counters.bank_conflicts},
          {"stalled_warps_per_issue", stalls}};
}

/// Opens a model for one op's weights ("": none). A synthetic model makes no other weights.
std::unique_ptr<ModelSource> open_kernel_source(const std::string& model, std::string_view op) {
  std::unique_ptr<ModelSource> shapes = open_shapes(model);
  if (op.empty() || !model.starts_with(kSyntheticPrefix)) return shapes;
  const KernelOps ops(*shapes, {});
  return make_synthetic_model(model, [&](std::string_view tensor) {
    return std::ranges::count(ops.tensors(op), tensor, &HostTensor::name) > 0;
  });
}

}  // namespace

double KernelResult::median_us() const {
  return median_of(samples_us);
}

double KernelBench::roofline(const KernelResult& result) const {
  const KernelWork work = result.kernel.work();
  return ceilings.floor_us(work.bytes(), work.flops, units_of(result.kernel.info)) / result.median_us();
}

std::string_view KernelBench::bound(const KernelResult& result) const {
  const KernelWork work = result.kernel.work();
  return ceilings.compute_bound(work.bytes(), work.flops, units_of(result.kernel.info)) ? "compute"
                                                                                        : "memory";
}

KernelBench run_kernel_bench(const KernelBenchOptions& options, const EngineOptions& engine) {
  KernelBench bench{.model = options.model.empty() ? kDefaultKernelModel : options.model,
                    .counted = options.counters};
  std::vector<std::string> ops = options.ops;
  if (ops.empty()) {
    const std::unique_ptr<ModelSource> shapes = open_kernel_source(bench.model, "");
    ops = KernelOps(*shapes, {}).names();
  }
  for (const std::string& op : ops) {
    const std::unique_ptr<ModelSource> source = open_kernel_source(bench.model, op);
    std::unique_ptr<Backend> backend = RankBackends(engine, *source, nullptr).make(0);
    const BackendInfo info = bench.backend = backend->info();
    bench.ceilings = device_ceilings(info, MINFER_VERSION);  // before the weights take the memory
    const KernelTypes types{info.activation_dtype, choose_kv_dtype(engine, source->config(), info)};
    const KernelOps of_model(*source, types, engine.quantization);
    const std::vector<HostTensor>& tensors = of_model.tensors(op);
    KernelOperands operands(tensors, std::move(backend), of_model.cases(op, options.sizes, info.asynchronous),
                            engine.block_size, cold_bytes(info));
    for (const KernelCase& c : operands.cases()) {
      show_progress(fmt::format("{} {}, M {}", c.info.name, c.shape(), c.tokens));
      KernelResult& result = bench.results.emplace_back(KernelResult{
          .kernel = c,
          .weight_dtype = tensors.empty() ? info.activation_dtype : tensors.front().loaded_dtype(),
          .samples_us = measure_kernel_us(operands, c, options.repetitions)});
      if (options.counters && bench.counters_error.empty() && c.info.kind != OpKind::sample) {
        OpCounters counters;
        const std::string error = count_kernel(operands, c, counters);
        if (error.empty()) result.counters = std::move(counters);
        bench.counters_error = error;
      }
      const std::vector<cuda::Product> products = operands.products(c);
      if (!products.empty()) result.cublas_us = cuda::fastest_matmul_us(products);
    }
  }
  show_progress("");
  return bench;
}

Table kernel_table(const KernelBench& bench) {
  Table table{.title = "ops by themselves, cold caches",
              .columns = {"op", "shape", "type", "M", "us", "p5-p95", "GB/s", "TFLOP/s", "of roofline",
                          "cuBLASLt us"}};
  if (bench.counted) {
    for (const char* column : {"read of counted", "occupancy", "L2 hit", "tensor", "warps stalled an issue"})
      table.columns.emplace_back(column);
  }
  for (const KernelResult& result : bench.results) {
    const KernelWork work = result.kernel.work();
    const double us = result.median_us();
    const double p5 = percentile_of(result.samples_us, 0.05), p95 = percentile_of(result.samples_us, 0.95);
    table.add(result.kernel.info.name, result.kernel.shape(), name(result.weight_dtype), result.kernel.tokens,
              us, three_digits(p5) + "-" + three_digits(p95), static_cast<double>(work.bytes()) * 1e-3 / us,
              static_cast<double>(work.flops) * 1e-6 / us,
              bench.ceilings.known()
                  ? fmt::format("{:.0f} % {}", 100.0 * bench.roofline(result), bench.bound(result))
                  : "",
              result.cublas_us ? three_digits(*result.cublas_us) : "");
    if (bench.counted) std::ranges::move(counter_cells(result), std::back_inserter(table.rows.back()));
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
    json["shape"] = result.kernel.shape();
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
    json["bound"] = bench.bound(result);
    json["cublaslt_us"] = result.cublas_us ? Json(*result.cublas_us) : Json();
    if (bench.counted) json["counters"] = result.counters ? json_of(*result.counters) : Json();
    objects.push_back(std::move(json));
  }
  return objects;
}

}  // namespace minfer
