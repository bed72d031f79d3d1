#include "engine/speculation/draft_passes.h"

#include <limits>
#include <utility>

#include "engine/request/live_request.h"

namespace minfer {

SamplingRow DraftJob::next_row() const {
  SamplingRow row =
      request->sampling.row(request->size() + num_coming, request->num_output_tokens() + num_coming);
  row.top_logprobs = -1;
  row.state = request->arrival + 1;
  return row;
}

void DraftPasses::add(DraftJob& job, int32_t first_token, int32_t num_tokens, int32_t num_rows) {
  LiveRequest& request = *job.request;
  batch_.sequences.push_back({.sequence = &request,
                              .first_token = first_token,
                              .num_tokens = num_tokens,
                              .num_logit_rows = num_rows,
                              .num_preemptions = request.num_preemptions,
                              .num_scored = std::max(0, num_rows - 1),
                              .num_drafts = job.num_coming});
  batch_.num_tokens += num_tokens;
  if (job.num_coming > 0) end_decoding();
  if (num_rows == 0) return;
  rows_.insert(rows_.end(), static_cast<size_t>(num_rows), job.next_row());
  drawing_.insert(drawing_.end(), static_cast<size_t>(num_rows), nullptr);
  drawing_.back() = &job;
  ++job.num_coming;
}

void DraftPasses::launch() {
  passes_[num_launched_++ % passes_.size()].swap(drawing_);
  launch_({.batch = builder_.build(batch_).view(), .rows = rows_});
  batch_.sequences.clear();
  batch_.num_tokens = 0;
  batch_.num_decode_sequences = 0;
  rows_.clear();
  drawing_.clear();
}

void DraftPasses::finish() {
  const OpenPass& pass = passes_[num_finished_++ % passes_.size()];
  sampled_.resize(pass.size());
  finish_(sampled_);
  for (size_t row = 0; row < pass.size(); ++row) {
    DraftJob* const job = pass[row];
    if (job == nullptr) continue;
    std::vector<TokenId>& drafts = job->request->drafts;
    if (!sampled_[row].is_drawn()) job->num_drafts = static_cast<int32_t>(drafts.size());
    if (std::ssize(drafts) < job->num_drafts) drafts.push_back(sampled_[row].token);
  }
}

double DraftPasses::finish_all(std::span<DraftJob> jobs, const std::function<void(DraftJob&)>& add_next) {
  int64_t begin_ns = now_ns();
  const auto took_ns = [&] {
    const int64_t from_ns = std::exchange(begin_ns, now_ns());
    return static_cast<double>(begin_ns - from_ns);
  };
  double fastest_ns = std::numeric_limits<double>::infinity();
  for (int32_t i = 1;; ++i) {
    for (DraftJob& job : jobs) {
      if (job.num_drafts > i && job.num_coming == i) add_next(job);
    }
    if (batch_.empty()) break;
    launch();
    if (num_launched_ - num_finished_ < passes_.size()) continue;
    finish();
    fastest_ns = std::min(fastest_ns, took_ns());
  }
  if (num_finished_ < num_launched_) {
    finish();
    fastest_ns = std::min(fastest_ns, took_ns());
  }
  return fastest_ns;
}

}  // namespace minfer
