// Microseconds of an all-reduce of bf16 parts between GPUs, inside a CUDA graph of 64 of them:
//   cuda_all_reduce_benchmark [ranks, 2] [hidden, 4096] [largest part in MiB, 64]
// A JSON line for each size and each kind of call, with the median over replays for each rank:
//   fused      x += sum of parts, normed = rms_norm(x); by the default path without measuring, and by each path
//   residual   the same without the norm
//   nccl       only ncclAllReduce              nccl_norm   the same, and the kernel that adds and norms

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include <fmt/format.h>

#include "tests/support/cuda/cuda_ranks_run.h"

namespace minfer {
namespace {

using cuda::AllReducePath;
using test::RankRun;
using test::RankTensor;

constexpr int kCalls = 64;
constexpr int kWarmUp = 3;
constexpr int kReplays = 15;
constexpr int64_t kFirstBytes = int64_t{8} << 10;

struct Measured {
  std::string what;
  int64_t bytes = 0;
  double us = 0.0;
};

/// The measurements on a rank, one after the other, in the same order on all ranks.
class RankBenchmark {
 public:
  RankBenchmark(const std::shared_ptr<CudaRanks>& peers, const std::shared_ptr<CudaRanks>& nccl, Rank rank,
                int64_t hidden, int64_t most_bytes)
      : rows_(most_bytes / (2 * hidden)),
        part_(DType::bf16, rows_, hidden),
        x_(DType::f32, rows_, hidden),
        normed_(DType::bf16, rows_, hidden),
        norm_(DType::f32, 1, hidden) {
    for (const RankTensor* tensor : {&part_, &x_, &normed_, &norm_})
      cuda::check(cudaMemset(tensor->tensor().data, 0, tensor->bytes()), "clearing");
    cuda::check(cudaDeviceSynchronize(), "clearing");
    StepLimits limits;
    limits.max_tokens = static_cast<int32_t>(rows_);
    limits.max_logit_rows = 1;
    limits.hidden_size = hidden;
    limits.vocab_size = 1;
    limits.logit_slice = 1;
    if (peers != nullptr) by_peers_.emplace(peers, rank, limits);
    if (nccl == nullptr) return;
    by_nccl_.emplace(nccl, rank, limits);
    cuda::NcclLibrary::UniqueId id{};
    if (rank.is_first()) nccl->nccl()->check(nccl->nccl()->get_unique_id(&id), "making an id");
    comm_ = std::make_unique<cuda::NcclComm>(*nccl->nccl(), rank, nccl->exchange(rank, id).front());
  }

  std::vector<Measured> measure() {
    std::vector<Measured> all;
    const int64_t row_bytes = part_.tensor().cols * 2;
    for (int64_t bytes = std::max(kFirstBytes, row_bytes); bytes <= rows_ * row_bytes; bytes *= 2) {
      const auto add = [&](std::string what, RankRun& run, const std::function<void()>& call) {
        all.push_back({std::move(what), bytes, measure_us(run, call)});
      };
      const int64_t rows = bytes / row_bytes;
      if (by_peers_) {
        RankRun& run = *by_peers_;
        const auto reduce = [&](bool has_norm) {
          return [this, &run, rows, has_norm] {
            cuda::Launch launch = run.launch();
            run.ops().all_reduce(launch, args(rows, has_norm));
          };
        };
        add("fused", run, reduce(true));
        add("residual", run, reduce(false));
        for (const AllReducePath path :
             {AllReducePath::lines, AllReducePath::chunks, AllReducePath::two_shot}) {
          if (path == AllReducePath::lines && bytes > 4 * cuda::kMostLineBytes) continue;
          run.ops().force(path);
          add(fmt::format("fused_{}", name(path)), run, reduce(true));
        }
        run.ops().force(std::nullopt);
      }
      if (!by_nccl_) continue;
      RankRun& run = *by_nccl_;
      add("nccl", run, [&] {
        comm_->all_reduce(part_.tensor().data, static_cast<size_t>(rows * part_.tensor().cols), DType::bf16,
                          run.stream());
      });
      add("nccl_norm", run, [&] {
        cuda::Launch launch = run.launch();
        run.ops().all_reduce(launch, args(rows, true));
      });
    }
    return all;
  }

 private:
  AllReduceArgs args(int64_t rows, bool has_norm) const {
    AllReduceArgs args{.part = part_.first(rows), .x = x_.first(rows), .add_to_x = true, .norm_eps = 1e-5f};
    if (!has_norm) return args;
    args.norm = {
        .data = norm_.tensor().data, .dtype = DType::f32, .count = 1, .rows = 1, .cols = norm_.tensor().cols};
    args.normed = normed_.first(rows);
    return args;
  }

  static double measure_us(RankRun& run, const std::function<void()>& call) {
    call();  // the set-up of a first call cannot be captured
    run.wait();
    const cuda::GraphExec graph = run.capture([&] {
      for (int i = 0; i < kCalls; ++i)
        call();
    });
    std::vector<cuda::Event> events(kReplays + 1);
    for (cuda::Event& event : events)
      event = cuda::make_timing_event();
    run.meet();
    for (int replay = 0; replay < kWarmUp + kReplays; ++replay) {
      if (replay >= kWarmUp) record(events[static_cast<size_t>(replay - kWarmUp)], run);
      cuda::check(cudaGraphLaunch(graph.get(), run.stream()), "graph launch");
    }
    record(events.back(), run);
    run.wait();
    std::vector<double> us;
    for (size_t i = 0; i + 1 < events.size(); ++i) {
      float ms = 0.0f;
      cuda::check(cudaEventElapsedTime(&ms, events[i].get(), events[i + 1].get()), "reading events");
      us.push_back(ms * 1e3 / kCalls);
    }
    run.meet();
    std::ranges::nth_element(us, us.begin() + kReplays / 2);
    return us[kReplays / 2];
  }
  static void record(const cuda::Event& event, const RankRun& run) {
    cuda::check(cudaEventRecord(event.get(), run.stream()), "an event");
  }

  int64_t rows_;
  RankTensor part_, x_, normed_, norm_;
  std::optional<RankRun> by_peers_, by_nccl_;
  std::unique_ptr<cuda::NcclComm> comm_;
};

std::shared_ptr<CudaRanks> ranks_by(AllReduceChoice choice, int32_t count,
                                    const std::shared_ptr<RankFailure>& failure) {
  try {
    return make_cuda_ranks(
        {.count = count, .all_reduce = choice, .failure = failure, .patience = std::chrono::seconds(60)});
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return nullptr;
  }
}

int run(int32_t count, int64_t hidden, int64_t most_bytes) {
  const auto failure = std::make_shared<RankFailure>();
  const auto peers = ranks_by(AllReduceChoice::peer, count, failure);
  const auto nccl = ranks_by(AllReduceChoice::nccl, count, failure);
  std::vector<std::vector<Measured>> measured(static_cast<size_t>(count));
  const std::vector<std::string> errors = test::run_on_ranks(count, *failure, [&](Rank rank) {
    RankBenchmark benchmark(peers, nccl, rank, hidden, most_bytes);
    measured[static_cast<size_t>(rank.index)] = benchmark.measure();
  });
  for (const std::string& error : errors) {
    if (!error.empty()) fmt::print(stderr, "{}\n", error);
    if (!error.empty()) return 1;
  }
  for (size_t i = 0; i < measured[0].size(); ++i) {
    std::string us;
    for (const std::vector<Measured>& of_rank : measured)
      us += fmt::format("{}{:.2f}", us.empty() ? "" : ", ", of_rank[i].us);
    const Measured& first = measured[0][i];
    fmt::print("{{\"what\": \"{}\", \"bytes\": {}, \"hidden\": {}, \"ranks\": {}, \"us\": [{}]}}\n",
               first.what, first.bytes, hidden, count, us);
  }
  return 0;
}

}  // namespace
}  // namespace minfer

int main(int argc, char** argv) {
  const auto argument = [&](int index, int64_t usual) {
    return argc > index ? std::strtoll(argv[index], nullptr, 10) : usual;
  };
  return minfer::run(static_cast<int32_t>(argument(1, 2)), argument(2, 4096), argument(3, 64) << 20);
}
