// All-reduces of two GPUs, each on its own thread, by every path, against sums in double precision.

#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>

#include <gtest/gtest.h>

#include "kernels/half.h"
#include "tests/support/cuda/cuda_data.h"
#include "tests/support/cuda/cuda_ranks_run.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/random_data.h"

namespace minfer {
namespace {

using cuda::AllReducePath;
using test::CudaArray;
using test::kTwoRanks;
using test::RankRun;
using test::RankTensor;
using test::run_on_ranks;

constexpr float kReduceEps = 1e-5f;

/// One sum: the shape, the types, and how it is made.
struct ReduceCase {
  int64_t rows = 1;
  int64_t cols = 0;
  DType part = DType::bf16;
  DType normed = DType::bf16;
  bool add_to_x = true;
  bool has_norm = true;
  bool in_place = false;  ///< x is the part itself
  int64_t gap = 0;        ///< elements between rows
};

std::ostream& operator<<(std::ostream& out, const ReduceCase& c) {
  return out << c.rows << " x " << c.cols << ", part " << name(c.part) << (c.in_place ? " in place" : "")
             << (c.add_to_x ? ", added" : "")
             << (c.has_norm ? ", normed " + std::string(name(c.normed)) : std::string()) << ", gap " << c.gap;
}

/// Element `i` of tensor `which`: cheap to compute, different everywhere, about as large as hidden states.
float element_of(uint64_t which, int64_t i) {
  uint64_t bits = (static_cast<uint64_t>(i) + 1) * 0x9e3779b97f4a7c15u + which * 0xd1b54a32d192ed03u;
  bits ^= bits >> 29;
  bits *= 0xbf58476d1ce4e5b9u;
  return static_cast<float>(static_cast<int64_t>(bits >> 40) - (1 << 23)) * 0x1p-22f;
}

std::vector<float> elements_of(uint64_t which, int64_t count, DType dtype) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const float value = element_of(which, static_cast<int64_t>(i));
    values[i] = dtype == DType::bf16 ? bf16_to_f32(f32_to_bf16(value)) : value;
  }
  return values;
}

void put_rows(const Tensor& to, std::span<const float> values) {
  const std::vector<uint8_t> bytes = test::encode(values, to.dtype);
  const size_t element = traits(to.dtype).block_bytes;
  const auto row = static_cast<size_t>(to.cols) * element;
  cuda::check(cudaMemcpy2D(to.data, static_cast<size_t>(to.stride) * element, bytes.data(), row, row,
                           static_cast<size_t>(to.rows), cudaMemcpyHostToDevice),
              "upload");
  cuda::check(cudaDeviceSynchronize(), "upload");
}

std::vector<float> get_rows(const Tensor& from) {
  const size_t element = traits(from.dtype).block_bytes;
  const auto row = static_cast<size_t>(from.cols) * element;
  std::vector<uint8_t> bytes(row * static_cast<size_t>(from.rows));
  cuda::check(cudaMemcpy2D(bytes.data(), row, from.data, static_cast<size_t>(from.stride) * element, row,
                           static_cast<size_t>(from.rows), cudaMemcpyDeviceToHost),
              "download");
  return test::decode(bytes, from.dtype);
}

/// The expected x and normed, in double precision.
struct ExpectedSums {
  std::vector<double> x, normed;
};

ExpectedSums expected_sums(const ReduceCase& c, uint64_t seed, std::span<const float> norm) {
  const int64_t count = c.rows * c.cols;
  ExpectedSums expected;
  expected.x.resize(static_cast<size_t>(count));
  for (int32_t rank = 0; rank < kTwoRanks; ++rank) {
    const std::vector<float> part = elements_of(seed + static_cast<uint64_t>(rank), count, c.part);
    for (size_t i = 0; i < part.size(); ++i)
      expected.x[i] += part[i];
  }
  if (c.add_to_x) {
    const std::vector<float> x = elements_of(seed + 100, count, DType::f32);
    for (size_t i = 0; i < x.size(); ++i)
      expected.x[i] += x[i];
  }
  if (!c.has_norm) return expected;
  expected.normed.resize(expected.x.size());
  for (int64_t row = 0; row < c.rows; ++row) {
    const std::span<const double> x =
        std::span(expected.x).subspan(static_cast<size_t>(row * c.cols), static_cast<size_t>(c.cols));
    double squares = 0.0;
    for (const double value : x)
      squares += value * value;
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(c.cols) + double{kReduceEps});
    for (int64_t col = 0; col < c.cols; ++col)
      expected.normed[static_cast<size_t>(row * c.cols + col)] =
          x[static_cast<size_t>(col)] * scale * double{norm[static_cast<size_t>(col)]};
  }
  return expected;
}

struct RankSums {
  std::vector<float> x = {}, normed = {};
};

/// Memory for all cases of a rank, made once: while one rank frees memory, a kernel of the other could not wait for it.
class CaseMemory {
 public:
  explicit CaseMemory(std::span<const ReduceCase> cases) {
    int64_t elements = 0, cols = 0;
    for (const ReduceCase& c : cases) {
      elements = std::max(elements, c.rows * (c.cols + c.gap));
      cols = std::max(cols, c.cols);
    }
    for (cuda::DeviceBuffer* buffer : {&part_, &x_, &normed_, &norm_})
      *buffer = cuda::DeviceBuffer(static_cast<size_t>(buffer == &norm_ ? cols : elements) * sizeof(float),
                                   "test data");
  }

  RankSums run(RankRun& run, const ReduceCase& c, uint64_t seed, std::span<const float> norm) const {
    const auto tensor = [&c](const cuda::DeviceBuffer& buffer, DType dtype) {
      return Tensor{buffer.data(), dtype, c.rows, c.cols, c.cols + c.gap};
    };
    const Tensor x = tensor(x_, DType::f32), normed = tensor(normed_, c.normed);
    const Tensor part = c.in_place ? x : tensor(part_, c.part);
    for (const cuda::DeviceBuffer* buffer : {&part_, &x_, &normed_})
      cuda::check(cudaMemset(buffer->data(), 0xff, buffer->bytes()), "poisoning");
    cuda::check(cudaDeviceSynchronize(), "poisoning");
    put_rows(part, elements_of(seed + static_cast<uint64_t>(run.rank().index), c.rows * c.cols, c.part));
    if (c.add_to_x) put_rows(x, elements_of(seed + 100, c.rows * c.cols, DType::f32));
    AllReduceArgs args{.part = part, .x = x, .add_to_x = c.add_to_x, .norm_eps = kReduceEps};
    if (c.has_norm) {
      const Tensor weight{norm_.data(), DType::f32, 1, c.cols, c.cols};
      put_rows(weight, norm);
      args.norm = {.data = weight.data, .dtype = DType::f32, .count = 1, .rows = 1, .cols = c.cols};
      args.normed = normed;
    }
    cuda::Launch launch = run.launch();
    run.ops().all_reduce(launch, args);
    run.wait();
    RankSums sums{.x = get_rows(x)};
    if (c.has_norm) sums.normed = get_rows(normed);
    return sums;
  }

 private:
  cuda::DeviceBuffer part_, x_, normed_, norm_;
};

/// The most that rounding to bf16 adds: half a unit of 8 bits, squared.
constexpr double kBf16Rounding = 1.6e-5;

double sum_limit(const ReduceCase& c, AllReducePath path) {
  const bool rounds =
      c.part == DType::bf16 && (path == AllReducePath::two_shot || path == AllReducePath::nccl);
  return rounds ? 1e-5 : 1e-12;
}

class CudaAllReduce : public testing::TestWithParam<AllReducePath> {
 protected:
  void SetUp() override {
    if (test::num_usable_gpus() < kTwoRanks) GTEST_SKIP() << "fewer than " << kTwoRanks << " GPUs";
    const AllReduceChoice choice =
        GetParam() == AllReducePath::nccl ? AllReduceChoice::nccl : AllReduceChoice::peer;
    try {
      ranks_ = make_cuda_ranks({.count = kTwoRanks,
                                .all_reduce = choice,
                                .failure = failure_,
                                .patience = std::chrono::seconds(60)});
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  static StepLimits limits(int64_t cols, int32_t tokens) {
    StepLimits limits;
    limits.max_tokens = tokens;
    limits.max_logit_rows = 64;
    limits.logit_slice = 64;
    limits.vocab_size = 1024;
    limits.hidden_size = cols;
    return limits;
  }

  /// Runs `work` on each rank, with its ops on the path of the test.
  void on_ranks(const StepLimits& of, const std::function<void(RankRun&)>& work) {
    const std::vector<std::string> errors = run_on_ranks(kTwoRanks, *failure_, [&](Rank rank) {
      RankRun run(ranks_, rank, of);
      run.ops().force(GetParam());
      work(run);
    });
    for (const std::string& error : errors)
      EXPECT_EQ(error, "");
  }

  /// Runs the cases on all ranks, and compares each with the reference and with the other rank's bits.
  void check_cases(std::span<const ReduceCase> cases, int64_t most_cols) {
    std::vector<std::array<RankSums, kTwoRanks>> sums(cases.size());
    on_ranks(limits(most_cols, 2048), [&](RankRun& run) {
      const CaseMemory memory(cases);
      run.meet();
      for (size_t i = 0; i < cases.size(); ++i)
        sums[i][static_cast<size_t>(run.rank().index)] =
            memory.run(run, cases[i], 1000 * i, test::normal_values(cases[i].cols, 7));
    });
    for (size_t i = 0; i < cases.size(); ++i) {
      const ReduceCase& c = cases[i];
      const ExpectedSums expected = expected_sums(c, 1000 * i, test::normal_values(c.cols, 7));
      ASSERT_EQ(sums[i][0].x.size(), expected.x.size());
      EXPECT_LT(test::nmse(sums[i][0].x, expected.x), sum_limit(c, GetParam())) << c;
      if (c.has_norm) {
        EXPECT_LT(test::nmse(sums[i][0].normed, expected.normed),
                  sum_limit(c, GetParam()) + (c.normed == DType::bf16 ? kBf16Rounding : 1e-12))
            << c;
      }
      for (const RankSums& other : sums[i]) {
        EXPECT_EQ(std::memcmp(other.x.data(), sums[i][0].x.data(), other.x.size() * sizeof(float)), 0) << c;
        EXPECT_EQ(other.normed, sums[i][0].normed) << c;
      }
    }
  }

  std::shared_ptr<RankFailure> failure_ = std::make_shared<RankFailure>();
  std::shared_ptr<CudaRanks> ranks_;
};

std::string path_name(const testing::TestParamInfo<AllReducePath>& info) {
  return std::string(name(info.param));
}

INSTANTIATE_TEST_SUITE_P(Paths, CudaAllReduce,
                         testing::Values(AllReducePath::lines, AllReducePath::chunks, AllReducePath::two_shot,
                                         AllReducePath::nccl),
                         path_name);

/// Small enough to run under compute-sanitizer.
TEST_P(CudaAllReduce, SumsSmallRowsOfEveryTypeAndLayout) {
  const bool has_gaps = GetParam() != AllReducePath::nccl;
  std::vector<ReduceCase> cases;
  for (const int64_t cols : {8, 136, 1000, 7, 1003}) {
    for (const int64_t rows : {1, 2, 7}) {
      for (const DType part : {DType::f32, DType::bf16}) {
        cases.push_back({.rows = rows, .cols = cols, .part = part});
        cases.push_back({.rows = rows, .cols = cols, .part = part, .normed = DType::f32, .add_to_x = false});
        cases.push_back({.rows = rows, .cols = cols, .part = part, .has_norm = false});
        if (has_gaps) cases.push_back({.rows = rows, .cols = cols, .part = part, .gap = 24});
        if (has_gaps) cases.push_back({.rows = rows, .cols = cols, .part = part, .gap = 3});
      }
      cases.push_back({.rows = rows, .cols = cols, .part = DType::f32, .add_to_x = false, .in_place = true});
    }
  }
  check_cases(cases, 1003);
}

TEST_P(CudaAllReduce, SumsTheShapesOfModels) {
  std::vector<ReduceCase> cases;
  for (const int64_t cols : {2048, 4096, 8192, 16384}) {
    for (const int64_t rows : {1, 2, 7, 64, 257}) {
      cases.push_back({.rows = rows, .cols = cols});
      cases.push_back({.rows = rows, .cols = cols, .part = DType::f32, .normed = DType::f32});
    }
  }
  // 2,048 rows of 8,192 f32 are 64 MiB: more than goes in one piece.
  cases.push_back({.rows = 2048, .cols = 4096});
  cases.push_back({.rows = 2048, .cols = 8192, .part = DType::f32});
  cases.push_back({.rows = 2048, .cols = 2048, .part = DType::f32, .add_to_x = false, .in_place = true});
  check_cases(cases, 16384);
}

/// Parts of small integers, so that sums over many calls are exact.
class CountedCalls {
 public:
  static constexpr int64_t kRows = 200;
  static constexpr int64_t kCols = 1000;
  static constexpr size_t kParts = 7;

  explicit CountedCalls(RankRun& run) : part_(DType::bf16, kRows, kCols), x_(DType::f32, kRows, kCols) {
    for (size_t i = 0; i < kParts; ++i) {
      const RankTensor& part = parts_.emplace_back(DType::bf16, kRows, kCols);
      put_rows(part.tensor(), values(i, run.rank().index));
    }
    cuda::check(cudaMemset(x_.tensor().data, 0, x_.bytes()), "clearing");
    cuda::check(cudaDeviceSynchronize(), "clearing");
    run.meet();
  }
  static std::vector<float> values(size_t part, int32_t rank) {
    std::vector<float> values(static_cast<size_t>(kRows * kCols));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>((i * 31 + part * 17 + static_cast<size_t>(rank) * 5) % 9) - 4.0f;
    return values;
  }
  /// Adds part `call` modulo kParts to the first rows of x, from a copy, because NCCL sums in place.
  void call(RankRun& run, size_t call, int64_t rows) const {
    const Tensor part = part_.first(rows);
    cuda::check(cudaMemcpyAsync(part.data, parts_[call % kParts].tensor().data,
                                static_cast<size_t>(rows * kCols) * sizeof(uint16_t),
                                cudaMemcpyDeviceToDevice, run.stream()),
                "copying a part");
    cuda::Launch launch = run.launch();
    run.ops().all_reduce(launch, {.part = part, .x = x_.first(rows), .add_to_x = true});
  }
  std::vector<float> sums() const { return get_rows(x_.tensor()); }
  /// The expected x after calls with these numbers of rows, repeated `times` times.
  static std::vector<float> expected(std::span<const int64_t> rows_of_calls, int times) {
    std::array<std::vector<float>, kParts> sums;
    for (size_t part = 0; part < kParts; ++part) {
      sums[part] = values(part, 0);
      const std::vector<float> other = values(part, 1);
      for (size_t i = 0; i < other.size(); ++i)
        sums[part][i] += other[i];
    }
    std::vector<float> x(static_cast<size_t>(kRows * kCols));
    for (size_t call = 0; call < rows_of_calls.size(); ++call) {
      const auto count = static_cast<size_t>(rows_of_calls[call] * kCols);
      for (size_t i = 0; i < count; ++i)
        x[i] += static_cast<float>(times) * sums[call % kParts][i];
    }
    return x;
  }

 private:
  std::vector<RankTensor> parts_;
  RankTensor part_, x_;
};

std::vector<int64_t> random_row_counts(size_t calls, int64_t most) {
  std::mt19937 random(5);
  std::vector<int64_t> rows(calls);
  for (int64_t& count : rows)
    count = std::uniform_int_distribution<int64_t>(1, most)(random);
  return rows;
}

TEST_P(CudaAllReduce, AThousandCallsOfAnySizeFollowEachOther) {
  const std::vector<int64_t> rows = random_row_counts(1000, CountedCalls::kRows);
  const std::vector<float> expected = CountedCalls::expected(rows, 1);
  on_ranks(limits(CountedCalls::kCols, CountedCalls::kRows), [&](RankRun& run) {
    const CountedCalls calls(run);
    if (GetParam() == AllReducePath::lines) run.ops().force(std::nullopt);  // chunks in between
    for (size_t i = 0; i < rows.size(); ++i)
      calls.call(run, i, rows[i]);
    run.wait();
    EXPECT_EQ(calls.sums(), expected) << "rank " << run.rank().index;
  });
}

TEST_P(CudaAllReduce, AGraphOfThemIsReplayed) {
  constexpr int kReplays = 200;
  const std::vector<int64_t> rows = random_row_counts(9, 40);  // an odd number, so that buffers change sides
  const std::vector<float> expected = CountedCalls::expected(rows, kReplays);
  on_ranks(limits(CountedCalls::kCols, CountedCalls::kRows), [&](RankRun& run) {
    const CountedCalls calls(run);
    const cuda::GraphExec graph = run.capture([&] {
      for (size_t i = 0; i < rows.size(); ++i)
        calls.call(run, i, rows[i]);
    });
    for (int i = 0; i < kReplays; ++i)
      cuda::check(cudaGraphLaunch(graph.get(), run.stream()), "graph launch");
    run.wait();
    EXPECT_EQ(calls.sums(), expected) << "rank " << run.rank().index;
  });
}

void CUDART_CB sleep_a_little(void*) {
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

TEST_P(CudaAllReduce, WaitsForTheSlowerRank) {
  const std::vector<int64_t> rows = random_row_counts(40, 64);
  const std::vector<float> expected = CountedCalls::expected(rows, 1);
  on_ranks(limits(CountedCalls::kCols, CountedCalls::kRows), [&](RankRun& run) {
    const CountedCalls calls(run);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i / 3 % kTwoRanks == static_cast<size_t>(run.rank().index))
        cuda::check(cudaLaunchHostFunc(run.stream(), sleep_a_little, nullptr), "delay");
      calls.call(run, i, rows[i]);
    }
    run.wait();
    EXPECT_EQ(calls.sums(), expected) << "rank " << run.rank().index;
  });
}

TEST_P(CudaAllReduce, StampsWhenTheOthersHadCome) {
  if (GetParam() == AllReducePath::nccl) GTEST_SKIP() << "NCCL stamps nothing";
  on_ranks(limits(CountedCalls::kCols, CountedCalls::kRows), [&](RankRun& run) {
    const RankTensor part(DType::bf16, 4, CountedCalls::kCols), x(DType::f32, 4, CountedCalls::kCols);
    cuda::check(cudaMemsetAsync(part.tensor().data, 0, part.bytes(), run.stream()), "clearing");
    const CudaArray<unsigned long long> stamps(std::vector<unsigned long long>(3, 0));
    run.meet();
    if (run.rank().index == 1)
      cuda::check(cudaLaunchHostFunc(run.stream(), sleep_a_little, nullptr), "delay");
    cuda::Launch launch(run.stream(), run.num_sms(), {{stamps.data()}, stamps.data() + 1});
    EXPECT_TRUE(run.ops().all_reduce(launch, {.part = part.tensor(), .x = x.tensor()}, stamps.data() + 2));
    run.wait();
    const std::vector<unsigned long long> times = stamps.values();
    EXPECT_GE(times[2], times[0]);
    EXPECT_GE(times[1], times[2]);
    EXPECT_TRUE(launch.ends_with_stamp());
  });
}

TEST(CudaAllReduceChoice, IsMeasuredAndTheSameOnAllRanks) {
  if (test::num_usable_gpus() < kTwoRanks) GTEST_SKIP() << "fewer than " << kTwoRanks << " GPUs";
  const auto failure = std::make_shared<RankFailure>();
  const auto ranks =
      make_cuda_ranks({.count = kTwoRanks, .failure = failure, .patience = std::chrono::seconds(60)});
  if (ranks->nccl() == nullptr || !ranks->uses_peer_memory()) GTEST_SKIP() << "not both NCCL and peer memory";
  StepLimits limits;
  limits.max_tokens = 4096;
  limits.max_logit_rows = 64;
  limits.hidden_size = 4096;
  const std::vector<int64_t> rows = random_row_counts(100, CountedCalls::kRows);
  const std::vector<float> expected = CountedCalls::expected(rows, 1);
  const std::vector<std::string> errors = run_on_ranks(kTwoRanks, *failure, [&](Rank rank) {
    RankRun run(ranks, rank, limits);
    const CountedCalls calls(run);
    for (size_t i = 0; i < rows.size(); ++i)
      calls.call(run, i, rows[i]);
    run.wait();
    EXPECT_EQ(calls.sums(), expected);
  });
  EXPECT_EQ(errors, std::vector<std::string>(kTwoRanks));
  EXPECT_NE(ranks->describe().find("8 KiB"), std::string::npos) << ranks->describe();
  RecordProperty("measured", ranks->describe());
}

}  // namespace
}  // namespace minfer
