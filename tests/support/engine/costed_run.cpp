#include "tests/support/engine/costed_run.h"

#include "tests/support/engine/engine_run.h"
#include "tests/support/engine/scripted_backend.h"

namespace minfer::test {
namespace {

OpInfo costed_op(const char* op, OpKind kind) {
  OpInfo info;
  info.name = op;
  info.layer = 0;
  info.kind = kind;
  return info;
}

ProfileHeader costed_header(const EngineOptions& options, const StepCosts& costs, int32_t cores) {
  ProfileHeader header;
  header.backend = "cpu";
  header.threads = static_cast<int32_t>(costs.threads);
  header.cores = cores;
  header.options = {{"max_num_seqs", std::to_string(options.max_num_seqs)},
                    {"max_num_batched_tokens", std::to_string(options.max_num_batched_tokens)},
                    {"block_size", std::to_string(options.block_size)},
                    {"enable_prefix_caching", options.enable_prefix_caching ? "true" : "false"},
                    {"stream_interval", std::to_string(options.stream_interval)}};
  header.ops = {costed_op("products", OpKind::linear), costed_op("attention", OpKind::attention)};
  return header;
}

std::unique_ptr<Backend> costed_backend(const EngineOptions& options) {
  return std::make_unique<ScriptedBackend>(ScriptedBackend::Options{
      .num_blocks = options.num_blocks, .block_size = options.block_size, .vocab_size = 512});
}

}  // namespace

CostedRun::CostedRun(const EngineOptions& options, const StepCosts& costs, int32_t cores)
    : costs_(costs),
      header_(costed_header(options, costs, cores)),
      engine_(std::make_unique<Engine>(open_model("synthetic:tiny:f32"), options, LoadProgress{},
                                       costed_backend(options))),
      summariser_(header_.ops, header_.ceilings, ProfileDetail::op) {
  engine_->recorder().add_sink(*this);
}

CostedRun::~CostedRun() {
  engine_->recorder().remove_sink(*this);
}

void CostedRun::submit(int32_t prompt_tokens, int32_t output_tokens, const std::vector<TokenId>& prefix) {
  const std::string id = std::to_string(num_submitted_++);
  std::vector<TokenId> prompt = prefix;
  for (int32_t i = 0; i < prompt_tokens; ++i)
    prompt.push_back(static_cast<TokenId>(1 + (num_submitted_ * 37 + i * (num_submitted_ + 3)) % 500));
  arrivals_ns_[id] = static_cast<int64_t>(clock_us_ * 1e3) + 1;
  engine_->submit(greedy_request(id, std::move(prompt), output_tokens));
}

void CostedRun::run(int64_t steps) {
  for (int64_t i = 0; i < steps && engine_->has_work(); ++i)
    engine_->step();
}

void CostedRun::consume(const StepRecord& original) noexcept {
  StepRecord record = original;
  const BatchShape& shape = record.batch.shape;
  const double products_us = (costs_.shared_us + costs_.token_us * shape.tokens()) / costs_.threads;
  const auto attended = static_cast<double>(shape.decode_attended + shape.prefill_attended);
  const double attention_us = costs_.attention_us * attended / costs_.threads;
  const auto ns = [&](double us) { return static_cast<int64_t>((clock_us_ + us) * 1e3); };
  record.start_ns = ns(0.0);
  record.host_ns = {};
  record.host_ns[static_cast<size_t>(HostSpan::schedule)] = static_cast<int64_t>(costs_.host_us * 1e3);
  record.stamps = {};
  record.stamps.ops.push_back({.op = 0, .begin_ns = ns(costs_.host_us)});
  record.stamps.ops.push_back({.op = 1, .begin_ns = ns(costs_.host_us + products_us)});
  record.stamps.end_ns = record.end_ns = ns(costs_.host_us + products_us + attention_us);
  clock_us_ += costs_.host_us + products_us + attention_us;
  times_[record.step] = {.begin_ns = record.start_ns, .end_ns = record.end_ns};
  steps_.push_back(summariser_.summarise(record));
  if (shape.decode_sequences > 0) longest_gap_us_ = std::max(longest_gap_us_, steps_.back().wall_us);
}

Evidence CostedRun::evidence() const {
  Evidence evidence;
  evidence.header(header_);
  for (const StepSummary& step : steps_)
    evidence.add(step);
  for (EndedRequest request : requests_) {
    request.arrival_ns = arrivals_ns_.at(request.id);
    request.first_scheduled_ns = times_.at(request.steps.first).begin_ns + 1;
    // Without preemptions the steps of its prompt follow each other.
    request.first_token_ns = times_.at(request.steps.first + request.steps.prefill - 1).end_ns;
    request.end_ns = times_.at(request.steps.last).end_ns;
    if (costs_.client_wait > 0.0) {
      request.client_wait_ns =
          static_cast<int64_t>(costs_.client_wait * static_cast<double>(request.end_ns - request.arrival_ns));
    }
    evidence.request(request);
  }
  return evidence;
}

}  // namespace minfer::test
