#include "kernels/cuda/product/matmul_search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/cuda/launch/capture.h"
#include "kernels/cuda/product/matmul.h"

namespace minfer::cuda {
namespace {

constexpr int kPlans = 8;
constexpr double kEnoughUs = 4000.0;  ///< for one measurement
constexpr size_t kMostRuns = 64;
constexpr size_t kMeasurements = 3;

/// Runs a plan on its stream, product after product.
class PlanTimer {
 public:
  PlanTimer(Matmul& matmul, const Matmul::Plan& plan, std::span<const Product> products)
      : matmul_(matmul), plan_(plan), products_(products) {}

  double median_us() {
    enqueue(1);
    check(cudaStreamSynchronize(stream_.get()), "matmul");
    const double estimate_us = measure_us(2);
    const auto runs = static_cast<size_t>(std::max(1.0, kEnoughUs / estimate_us));
    std::array<double, kMeasurements> measured_us{};
    for (double& us : measured_us)
      us = measure_us(std::min(runs, kMostRuns));
    std::ranges::sort(measured_us);
    return measured_us[kMeasurements / 2];
  }

 private:
  void enqueue(size_t runs) {
    for (size_t i = 0; i < runs; ++i)
      matmul_.run(stream_.get(), products_[next_++ % products_.size()], plan_);
  }

  /// The time of one run out of `runs` in a graph, which excludes the host's time.
  double measure_us(size_t runs) {
    const GraphExec executable = replayable(stream_.get(), "capturing products", [&] { enqueue(runs); });
    check(cudaGraphUpload(executable.get(), stream_.get()), "products");
    check(cudaEventRecord(begin_.get(), stream_.get()), "products");
    check(cudaGraphLaunch(executable.get(), stream_.get()), "products");
    check(cudaEventRecord(end_.get(), stream_.get()), "products");
    check(cudaEventSynchronize(end_.get()), "products");
    float ms = 0.0f;
    check(cudaEventElapsedTime(&ms, begin_.get(), end_.get()), "products");
    return 1e3 * static_cast<double>(ms) / static_cast<double>(runs);
  }

  Matmul& matmul_;
  const Matmul::Plan& plan_;
  std::span<const Product> products_;
  size_t next_ = 0;
  Stream stream_ = make_stream();
  Event begin_ = make_timing_event();
  Event end_ = make_timing_event();
};

}  // namespace

FastestMatmul fastest_matmul(Matmul& matmul, std::span<const Product> products) {
  if (products.empty()) fail("fastest matmul: no products");
  FastestMatmul fastest{.plan = {}, .us = std::numeric_limits<double>::max()};
  const std::vector<Matmul::Plan> plans = matmul.propose(products.front(), products.front().x.rows, kPlans);
  if (plans.empty()) fail<DeviceError>("fastest matmul: cuBLASLt has no algorithm for the product");
  for (const Matmul::Plan& plan : plans) {
    const double us = PlanTimer(matmul, plan, products).median_us();
    if (us < fastest.us) fastest = {plan, us};
  }
  return fastest;
}

double fastest_matmul_us(std::span<const Product> products) {
  Matmul matmul;
  return fastest_matmul(matmul, products).us;
}

}  // namespace minfer::cuda
