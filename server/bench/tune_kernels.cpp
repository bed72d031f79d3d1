#include "server/bench/tune_kernels.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/ranks/rank_backends.h"
#include "kernels/bench/kernel_timer.h"
#include "kernels/cuda/device/devices.h"
#include "kernels/error.h"
#include "server/bench/bench_statistics.h"
#include "server/commands/terminal/terminal.h"

namespace minfer {
namespace {

using cuda::MeasuredPlan;
using cuda::ProductPlan;
using cuda::ProductShape;

/// Plans that took longer than this times the fastest are measured once only.
constexpr double kCloseFactor = 1.15;

/// Has one product computed by the plan that is being measured, and all others by the backend's rules.
class PlanUnderTest : public cuda::PlanSource {
 public:
  /// The product of a case from now on, by the rules until there is a plan.
  void watch(const KernelCase& c) {
    case_ = &c;
    shape_.reset();
    plan_ = {};
  }
  void set(const ProductPlan& plan) { plan_ = plan; }
  /// Of the product that is watched, once it has been computed; none: the case is several, or its weights have no choice.
  const std::optional<ProductShape>& shape() const { return shape_; }

  const ProductPlan* find(const ProductShape& shape, int64_t tokens) const override {
    const OpInfo& info = case_->info;
    if (tokens != case_->tokens || shape.rows != info.out_features || shape.cols != info.in_features)
      return nullptr;
    if (!shape_) shape_ = shape;
    const bool is_tested = shape == *shape_ && plan_.kernel != cuda::ProductKernel::automatic;
    return is_tested ? &plan_ : nullptr;
  }
  void check_device(const cuda::PlanDevice& /*device*/) const override {}

 private:
  const KernelCase* case_ = nullptr;
  mutable std::optional<ProductShape> shape_;
  ProductPlan plan_;
};

bool is_product(const KernelCase& c) {
  return c.info.kind == OpKind::linear || c.info.kind == OpKind::gate_up_swiglu;
}

/// The cases of an op in the order of their tokens, each number once.
std::vector<KernelCase> cases_of(const ModelConfig& config, const BackendInfo& info, const std::string& op,
                                 KernelSizes sizes) {
  std::ranges::sort(sizes.tokens);
  sizes.tokens.erase(std::unique(sizes.tokens.begin(), sizes.tokens.end()), sizes.tokens.end());
  return list_kernel_cases(config, {info.activation_dtype, info.activation_dtype}, op, sizes, true);
}

class CaseTuner {
 public:
  CaseTuner(KernelOperands& operands, PlanUnderTest& tested, const KernelCase& c)
      : operands_(operands), tested_(tested), case_(c) {
    tested_.watch(c);
    rules_us_ = median_of(samples({}));
  }

  /// None: there is nothing to choose.
  std::optional<cuda::KernelTableLine> tune(int64_t measured_below, const cuda::PlanDevice& device,
                                            int32_t repetitions) {
    const std::optional<ProductShape> shape = tested_.shape();
    if (!shape) return std::nullopt;
    const std::vector<ProductPlan> candidates = cuda::product_candidates(*shape, case_.tokens, device);
    if (candidates.size() < 2) return std::nullopt;
    std::vector<MeasuredPlan> measured{{candidates.front(), rules_us_}};
    for (size_t i = 1; i < candidates.size(); ++i)
      measured.push_back({candidates[i], median_of(samples(candidates[i]))});
    measure_again(measured, repetitions);
    return cuda::choose_plan(*shape, cuda::token_range(case_.tokens, measured_below), measured);
  }

 private:
  std::vector<double> samples(const ProductPlan& plan) {
    if (is_terminal(stderr)) {
      fmt::print(stderr, "\r\x1b[K{} {}, M {}: {}", case_.info.name, case_.shape(), case_.tokens,
                 cuda::to_string(plan));
      std::fflush(stderr);
    }
    tested_.set(plan);
    return measure_kernel_us(operands_, case_, 1);
  }

  /// Those close to the fastest take turns, so that a clock that changes is the same for all.
  void measure_again(std::vector<MeasuredPlan>& measured, int32_t repetitions) {
    const std::vector<ProductPlan> close = cuda::close_plans(measured, kCloseFactor);
    std::vector<std::vector<double>> us(close.size());
    for (int32_t turn = 0; turn < repetitions; ++turn) {
      for (size_t i = 0; i < close.size(); ++i) {
        const std::vector<double> more = samples(close[i]);
        us[i].insert(us[i].end(), more.begin(), more.end());
      }
    }
    for (size_t i = 0; i < close.size(); ++i)
      std::ranges::find(measured, close[i], &MeasuredPlan::plan)->us = median_of(us[i]);
  }

  KernelOperands& operands_;
  PlanUnderTest& tested_;
  const KernelCase& case_;
  double rules_us_ = 0.0;
};

/// Tunes the products of a model, one op's weights in memory at a time.
class Tuner {
 public:
  Tuner(const KernelBenchOptions& options, const EngineOptions& engine)
      : options_(options), engine_(engine), tested_(std::make_shared<PlanUnderTest>()) {
    engine_.kernel_plans = tested_;
    tuning_.model = options.model.empty() ? kDefaultKernelModel : options.model;
    tuning_.device = cuda::plan_device(cuda_devices().front());
  }

  KernelTuning tune() {
    const bool all = options_.ops.empty();
    std::vector<std::string> ops = options_.ops;
    if (all) {
      for (const std::string_view op : kernel_op_names(open_kernel_source(tuning_.model, "")->config()))
        ops.emplace_back(op);
    }
    for (const std::string& op : ops)
      tune_op(op, all);
    if (is_terminal(stderr)) fmt::print(stderr, "\r\x1b[K");
    return std::move(tuning_);
  }

 private:
  void tune_op(const std::string& op, bool skips_others) {
    const std::unique_ptr<ModelSource> source = open_kernel_source(tuning_.model, op);
    std::unique_ptr<Backend> backend = RankBackends(engine_, *source, nullptr).make(0);
    const BackendInfo info = tuning_.backend = backend->info();
    if (info.activation_dtype != DType::bf16)
      fail("--tune: activations are {}, expected bf16: products of others have one kernel",
           name(info.activation_dtype));
    std::vector<KernelCase> cases = cases_of(source->config(), info, op, options_.sizes);
    if (!is_product(cases.front())) {
      if (skips_others) return;
      fail("--op: {} is no product with dense weights, which are what --tune measures", op);
    }
    KernelOperands operands(loaded_kernel_tensors(*source, op, engine_), std::move(backend), std::move(cases),
                            engine_.block_size, cold_bytes(info));
    int64_t measured_below = 0;
    bool is_tuned = false;
    for (const KernelCase& c : operands.cases()) {
      CaseTuner tuner(operands, *tested_, c);
      if (const auto line =
              tuner.tune(std::exchange(measured_below, c.tokens), tuning_.device, options_.repetitions)) {
        is_tuned = true;
        if (!is_known(*line)) tuning_.products.push_back({op, *line});
      }
    }
    if (!is_tuned)
      tuning_.skipped.push_back(
          fmt::format("{}: its weights are of several types, or of one with one kernel alone", op));
  }

  /// Of another op with weights of the same shape.
  bool is_known(const cuda::KernelTableLine& line) const {
    return std::ranges::any_of(tuning_.products, [&](const KernelTuning::Product& product) {
      return product.line.shape == line.shape && product.line.tokens.last == line.tokens.last;
    });
  }

  const KernelBenchOptions& options_;
  EngineOptions engine_;
  std::shared_ptr<PlanUnderTest> tested_;
  KernelTuning tuning_;
};

}  // namespace

cuda::KernelTable KernelTuning::table() const {
  std::vector<cuda::KernelTableLine> lines;
  for (const Product& product : products)
    lines.push_back(product.line);
  return {device, std::move(lines)};
}

void require_tunable(const EngineOptions& engine) {
  if (!uses_cuda(engine) || !has_usable_gpu()) {
    fail(
        "--tune: needs a GPU: it chooses between the kernels of the CUDA backend by measuring them, and the "
        "device is the "
        "CPU");
  }
  if (engine.kernel_plans != nullptr)
    fail("--kernel-table: --tune measures the backend's own rules beside other plans, so it takes no table");
}

KernelTuning tune_kernels(const KernelBenchOptions& options, const EngineOptions& engine) {
  require_tunable(engine);
  return Tuner(options, engine).tune();
}

Table tuning_table(const KernelTuning& tuning) {
  Table table{
      .title = "fastest kernels of products, cold caches",
      .columns = {"op", "shape", "type", "M", "plan", "us", "next", "next us", "automatic us", "gain"},
      .rows = {}};
  for (const KernelTuning::Product& product : tuning.products) {
    const cuda::KernelTableLine& line = product.line;
    table.rows.push_back({product.op,
                          fmt::format("N {}{}, K {}", line.shape.op == cuda::ProductOp::gate_up ? "2 x " : "",
                                      line.shape.rows, line.shape.cols),
                          std::string(name(line.shape.type)),
                          fmt::format("{}-{}", line.tokens.first, line.tokens.last), to_string(line.plan),
                          three_digits(line.us), to_string(line.next), three_digits(line.next_us),
                          three_digits(line.automatic_us),
                          fmt::format("{:.0f} %", 100.0 * (1.0 - line.us / line.automatic_us))});
  }
  return table;
}

nlohmann::ordered_json tuning_json(const KernelTuning& tuning) {
  nlohmann::ordered_json objects = nlohmann::ordered_json::array();
  for (const KernelTuning::Product& product : tuning.products) {
    const cuda::KernelTableLine& line = product.line;
    objects.push_back({{"build_number", MINFER_VERSION},
                       {"backends", tuning.backend.name},
                       {"device", tuning.backend.device},
                       {"model", tuning.model},
                       {"op", product.op},
                       {"product", name(line.shape.op)},
                       {"type", name(line.shape.type)},
                       {"rows", line.shape.rows},
                       {"cols", line.shape.cols},
                       {"tokens_first", line.tokens.first},
                       {"tokens_last", line.tokens.last},
                       {"plan", to_string(line.plan)},
                       {"us", line.us},
                       {"next", to_string(line.next)},
                       {"next_us", line.next_us},
                       {"automatic_us", line.automatic_us}});
  }
  return objects;
}

}  // namespace minfer
