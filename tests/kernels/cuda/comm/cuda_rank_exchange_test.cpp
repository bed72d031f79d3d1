// Two GPUs: the first gets the other's logits, the other gets the first's tokens; and how both end when one fails.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/support/cuda/cuda_data.h"
#include "tests/support/cuda/cuda_ranks_run.h"
#include "tests/support/random_data.h"

namespace minfer {
namespace {

using cuda::AllReducePath;
using std::chrono::milliseconds;
using test::CudaArray;
using test::CudaTensor;
using test::kTwoRanks;
using test::RankRun;
using test::RankTensor;
using test::run_on_ranks;

StepLimits exchange_limits() {
  StepLimits limits;
  limits.max_tokens = 256;
  limits.max_logit_rows = 300;
  limits.logit_slice = 64;
  limits.vocab_size = 20'000;
  limits.hidden_size = 1024;
  return limits;
}

/// Parameter: by NCCL (true) or by peer memory (false).
class CudaRankExchange : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (test::num_usable_gpus() < kTwoRanks) GTEST_SKIP() << "fewer than " << kTwoRanks << " GPUs";
  }

  /// False, with the test marked as skipped, if the machine lacks a requirement.
  bool make_ranks(milliseconds patience) {
    const AllReduceChoice choice = GetParam() ? AllReduceChoice::nccl : AllReduceChoice::peer;
    try {
      ranks_ = make_cuda_ranks(
          {.count = kTwoRanks, .all_reduce = choice, .failure = failure_, .patience = patience});
    } catch (const Error& error) {
      skipped_ = error.what();
    }
    return ranks_ != nullptr;
  }

  std::vector<std::string> on_ranks(const std::function<void(RankRun&)>& work) {
    return run_on_ranks(kTwoRanks, *failure_, [&](Rank rank) {
      RankRun run(ranks_, rank, exchange_limits());
      work(run);
    });
  }

  /// The wait of a rank that is present but does not come.
  void wait_for_failure() const {
    while (!failure_->is_set())
      std::this_thread::sleep_for(milliseconds(1));
  }

  std::shared_ptr<RankFailure> failure_ = std::make_shared<RankFailure>();
  std::shared_ptr<CudaRanks> ranks_;
  std::string skipped_;
};

INSTANTIATE_TEST_SUITE_P(By, CudaRankExchange, testing::Bool(),
                         [](const auto& by) { return by.param ? "nccl" : "peers"; });

const std::vector<std::string> kNoErrors(kTwoRanks);

/// As in every step, an all-reduce stands between two calls of a one-way exchange.
void add_parts(RankRun& run, const RankTensor& part, const RankTensor& x) {
  cuda::Launch launch = run.launch();
  run.ops().all_reduce(launch, {.part = part.tensor(), .x = x.tensor()});
}

/// A gather's operands in a rank's memory, and its result.
struct GatherOperands {
  GatherOperands(Rank rank, int64_t num_rows, int64_t num_cols)
      : rows(num_rows), cols(num_cols), out(DType::f32, rows, kTwoRanks * cols) {
    std::vector<std::vector<float>> parts;
    for (uint64_t from = 0; from < kTwoRanks; ++from)
      parts.push_back(test::normal_values(rows * cols, 10 * static_cast<uint64_t>(cols) + from));
    for (int64_t row = 0; row < rows; ++row) {
      for (const std::vector<float>& values : parts)
        expected.insert(expected.end(), values.begin() + row * cols, values.begin() + (row + 1) * cols);
    }
    part = std::make_unique<CudaArray<float>>(parts[static_cast<size_t>(rank.index)]);
  }
  void launch(RankRun& run) const {
    cuda::Launch launch = run.launch();
    run.ops().gather_columns(launch, {part->data(), DType::f32, rows, cols, cols}, out.tensor());
  }

  int64_t rows, cols;
  std::unique_ptr<CudaArray<float>> part;
  CudaTensor out;
  std::vector<float> expected;
};

TEST_P(CudaRankExchange, ColumnsComeToTheFirstRank) {
  if (!make_ranks(milliseconds(60'000))) GTEST_SKIP() << skipped_;
  EXPECT_EQ(on_ranks([&](RankRun& run) {
              std::vector<GatherOperands> gathers;
              for (const int64_t cols : {8, 1000, 3, 5001}) {
                for (const int64_t rows : {1, 3, 64})
                  gathers.emplace_back(run.rank(), rows, cols);
              }
              run.meet();
              for (const GatherOperands& gather : gathers) {
                gather.launch(run);
                gather.launch(run);  // one behind the other, like the slices of a step's logits
              }
              run.wait();
              for (const GatherOperands& gather : gathers) {
                EXPECT_TRUE(gather.out.intact());
                if (run.rank().is_first()) {
                  EXPECT_EQ(gather.out.values(), gather.expected) << gather.rows << " x " << gather.cols;
                } else {
                  EXPECT_TRUE(std::isnan(gather.out.values().front()));
                }
              }
            }),
            kNoErrors);
}

TEST_P(CudaRankExchange, TokensComeToAllRanks) {
  if (!make_ranks(milliseconds(60'000))) GTEST_SKIP() << skipped_;
  EXPECT_EQ(on_ranks([&](RankRun& run) {
              const RankTensor part(DType::bf16, 1, 1024), x(DType::f32, 1, 1024);
              CudaArray<int32_t> held(std::vector<int32_t>(300, 0));
              run.meet();
              for (int32_t call = 0; call < 100; ++call) {
                const int32_t rows = 1 + call * 37 % 300;
                std::vector<int32_t> tokens(300, -7);
                std::iota(tokens.begin(), tokens.begin() + rows, 1000 * call);
                held.assign(run.rank().is_first() ? tokens : std::vector<int32_t>(300, -7));
                add_parts(run, part, x);
                cuda::Launch launch = run.launch();
                run.ops().share_tokens(launch, held.data(), rows);
                run.wait();
                EXPECT_EQ(held.values(), tokens);
              }
            }),
            kNoErrors);
}

TEST_P(CudaRankExchange, ARankThatNeverComesEndsTheOthersWait) {
  for (int op = 0; op < 3; ++op) {
    failure_ = std::make_shared<RankFailure>();
    if (!make_ranks(milliseconds(3'000))) GTEST_SKIP() << skipped_;
    const int waiting = op == 2 ? 1 : 0;  // the first rank waits for no rank to take its tokens
    const std::vector<std::string> errors = on_ranks([&](RankRun& run) {
      const RankTensor part(DType::bf16, 128, 1024), x(DType::f32, 128, 1024), logits(DType::f32, 2, 2000);
      const CudaArray<int32_t> tokens(std::vector<int32_t>(4, 0));
      run.meet();
      add_parts(run, part, x);  // allocates what NCCL needs at its first call
      run.wait();
      if (run.rank().index != waiting) return wait_for_failure();
      cuda::Launch launch = run.launch();
      if (op == 0) add_parts(run, part, x);
      if (op == 1)
        run.ops().gather_columns(launch, {part.tensor().data, DType::f32, 2, 1000, 1000}, logits.tensor());
      if (op == 2) run.ops().share_tokens(launch, tokens.data(), 4);
      EXPECT_THROW(run.wait(), DeviceError);
      EXPECT_EQ(cudaStreamQuery(run.stream()), cudaSuccess) << "op " << op;
      throw Error("as expected");
    });
    EXPECT_EQ(errors[static_cast<size_t>(waiting)], "as expected") << "op " << op;
    EXPECT_TRUE(failure_->is_set());
    try {
      failure_->check();
    } catch (const DeviceError& error) {
      EXPECT_NE(std::string(error.what()).find("waited 3000 ms"), std::string::npos) << error.what();
    }
    ranks_.reset();
  }
}

TEST_P(CudaRankExchange, AFailureElsewhereEndsTheWait) {
  for (const AllReducePath path : {AllReducePath::lines, AllReducePath::chunks, AllReducePath::two_shot}) {
    failure_ = std::make_shared<RankFailure>();
    if (!make_ranks(milliseconds(600'000))) GTEST_SKIP() << skipped_;
    std::string reason;
    on_ranks([&](RankRun& run) {
      run.ops().force(path);
      const RankTensor part(DType::bf16, 64, 1024), x(DType::f32, 64, 1024);
      run.meet();
      add_parts(run, part, x);
      run.wait();
      if (!run.rank().is_first()) {
        std::this_thread::sleep_for(milliseconds(50));
        failure_->set("the planned end");
        return;
      }
      for (int call = 0; call < 20; ++call)
        add_parts(run, part, x);
      try {
        run.wait();
      } catch (const DeviceError& error) {
        reason = error.what();
      }
    });
    EXPECT_EQ(reason, "the planned end");
    ranks_.reset();
  }
}

/// A step of a "model": token t's hidden state is 1, except 2 in column next(t), and equals its logits, so it draws next(t). Each rank
/// has half of the table, and half of the logits.
class RankStep {
 public:
  static constexpr int32_t kVocabulary = 64;
  static constexpr int32_t kShare = kVocabulary / kTwoRanks;
  static constexpr int64_t kHidden = 64;

  static int32_t next(int32_t token) { return (3 * token + 1) % kVocabulary; }

  RankStep(Backend& backend, Rank rank) : backend_(backend), rank_(rank) {
    for (int32_t token = 0; token < kShare; ++token) {
      for (int32_t col = 0; col < kHidden; ++col)
        table_.push_back(col == next(rank.index * kShare + token) ? 2.0f : 1.0f);
    }
    const HostTensor table{"table", table_.data(), DType::f32, 1, kShare, kHidden};
    backend.reserve_weights({&table, 1});
    embedding_ = backend.load(table);
    StepLimits limits;
    limits.max_tokens = 8;
    limits.max_sequences = 8;
    limits.max_logit_rows = 8;
    limits.logit_slice = 2;
    limits.max_blocks = 1;
    limits.max_stamps = 32;
    limits.vocab_size = kVocabulary;
    limits.hidden_size = kHidden;
    limits.ffn_size = kHidden;
    limits.qkv_size = 3 * kHidden;
    limits.heads = 1;
    limits.head_size = 64;
    backend.prepare(limits);
    x_ = backend.allocate(8 * kHidden * sizeof(float), "x");
    part_ = backend.allocate(2 * kShare * sizeof(float), "part of logits");
    logits_ = backend.allocate(2 * kVocabulary * sizeof(float), "logits");
  }

  LaunchedStep launch(std::span<const int32_t> tokens, StepStamps* stamps) {
    const auto count = static_cast<int32_t>(tokens.size());
    std::vector<int32_t> ones(tokens.size(), 1), zeros(tokens.size(), 0), places(tokens.size());
    std::vector<int32_t> starts(tokens.size() + 1);
    std::iota(places.begin(), places.end(), 0);
    std::iota(starts.begin(), starts.end(), 0);
    StepArgs step{
        .batch = {.num_tokens = count,
                  .num_sequences = count,
                  .num_decode_sequences = count,
                  .num_decode_tokens = count,
                  .num_logit_rows = count,
                  .max_blocks = 1,
                  .token_ids = tokens.data(),
                  .positions = zeros.data(),
                  .slots = places.data(),
                  .query_start = starts.data(),
                  .context_len = ones.data(),
                  .block_table = zeros.data(),
                  .logit_rows = places.data()},
        .inputs_op = 0,
        .sample_op = 3,
        .results_op = 5,
        .stamps = stamps,
        .more_logits = [this](const ForwardBatch& batch, int32_t first) { return logits(batch, first); },
        .share_op = 4};
    std::vector<SamplingRow> rows(tokens.size());
    for (SamplingRow& row : rows)
      row.temperature = 0.0f;
    if (rank_.is_first()) {
      step.rows = rows;
    } else {
      step.followed_rows = count;
    }
    return backend_.launch_step(step, [this](const ForwardBatch& batch) { return forward(batch); });
  }
  /// The token that the step draws from row `row`, by its hidden state.
  int32_t drawn(int32_t row) const {
    std::vector<float> values(kHidden);
    backend_.copy_to_host(values.data(), x(row + 1).f32_row(row), kHidden * sizeof(float));
    EXPECT_EQ(std::ranges::count(values, 1.0f), kHidden - 1);
    return static_cast<int32_t>(std::ranges::find(values, 2.0f) - values.begin());
  }

 private:
  Tensor x(int64_t rows) const { return {x_.data(), DType::f32, rows, kHidden, kHidden}; }
  Tensor forward(const ForwardBatch& batch) {
    backend_.embed(1, {.token_ids = batch.token_ids,
                       .table = embedding_,
                       .first_token = rank_.index * kShare,
                       .vocab_size = kVocabulary,
                       .out = x(batch.num_tokens)});
    backend_.all_reduce(2, {.part = x(batch.num_tokens), .x = x(batch.num_tokens)});
    return logits(batch, 0);
  }
  Tensor logits(const ForwardBatch& batch, int32_t first) {
    const int64_t rows = std::min(2, batch.num_logit_rows - first);
    const Tensor part{part_.data(), DType::f32, rows, kShare, kShare};
    const Tensor out{logits_.data(), DType::f32, rows, kVocabulary, kVocabulary};
    Tensor from = x(batch.num_tokens);
    from.cols = kShare;
    from.data = from.f32() + rank_.index * kShare;
    backend_.gather_rows(1, from, batch.logit_rows + first, part);
    backend_.gather_columns(2, part, out);
    return out;
  }

  Backend& backend_;
  Rank rank_;
  std::vector<float> table_;
  Weight embedding_;
  Buffer x_, part_, logits_;
};

TEST_P(CudaRankExchange, StepsOfBackendsGoTogether) {
  if (!make_ranks(milliseconds(60'000))) GTEST_SKIP() << skipped_;
  const std::vector<std::string> errors = run_on_ranks(kTwoRanks, *failure_, [&](Rank rank) {
    const std::unique_ptr<Backend> backend =
        make_cuda_backend({.activation_dtype = DType::f32, .rank = rank, .ranks = ranks_});
    RankStep step(*backend, rank);
    StepStamps stamps;
    for (int call = 0; call < 12; ++call) {
      const int32_t count = 1 + call % 5;
      std::vector<int32_t> tokens(static_cast<size_t>(count));
      for (int32_t i = 0; i < count; ++i)
        tokens[static_cast<size_t>(i)] = (7 * call + 23 * i) % RankStep::kVocabulary;
      stamps.clear();
      step.launch(tokens, &stamps);
      std::vector<SampledToken> sampled(rank.is_first() ? tokens.size() : 0);
      backend->finish_step(sampled);
      for (int32_t i = 0; i < count; ++i) {
        const int32_t drawn = RankStep::next(tokens[static_cast<size_t>(i)]);
        EXPECT_EQ(step.drawn(i), drawn);
        if (rank.is_first()) {
          EXPECT_EQ(sampled[static_cast<size_t>(i)].token, drawn);
        }
      }
      // The next step gets the last row's token without the host.
      const std::vector<int32_t> unknown(1, -count);
      step.launch(unknown, nullptr);
      sampled.resize(rank.is_first() ? 1 : 0);
      backend->finish_step(sampled);
      EXPECT_EQ(step.drawn(0), RankStep::next(RankStep::next(tokens.back())));
      const auto has_arrived = [](const StepStamps::Stamp& stamp) { return stamp.waited_ns > 0; };
      if (!GetParam()) {
        EXPECT_TRUE(std::ranges::any_of(stamps.ops, has_arrived));
      }
    }
  });
  EXPECT_EQ(errors, kNoErrors);
}

TEST_P(CudaRankExchange, AStepEndsWithAnErrorWhenTheOtherRankDoesNotCome) {
  if (!make_ranks(milliseconds(3'000))) GTEST_SKIP() << skipped_;
  const std::vector<std::string> errors = run_on_ranks(kTwoRanks, *failure_, [&](Rank rank) {
    const std::unique_ptr<Backend> backend =
        make_cuda_backend({.activation_dtype = DType::f32, .rank = rank, .ranks = ranks_});
    RankStep step(*backend, rank);
    const std::vector<int32_t> tokens{3, 5};
    std::vector<SampledToken> sampled(rank.is_first() ? 2 : 0);
    step.launch(tokens, nullptr);
    backend->finish_step(sampled);
    if (!rank.is_first()) return wait_for_failure();
    step.launch(tokens, nullptr);
    backend->finish_step(sampled);
  });
  EXPECT_NE(errors[0].find("rank 0 waited 3000 ms"), std::string::npos) << errors[0];
}

}  // namespace
}  // namespace minfer
