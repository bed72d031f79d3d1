#include "engine/ranks/step_reports.h"

#include <cstring>
#include <thread>
#include <type_traits>

#include "kernels/error.h"

namespace minfer {
namespace {

using Tag = ProcessGroup::Tag;

static_assert(std::is_trivially_copyable_v<RankStep>, "it is sent as bytes to the same build of the program");

/// The first rank takes them behind every step.
constexpr size_t kMostUnreported = 64;

}  // namespace

void StepReports::send(const RankStep& step) {
  while (!under_way_.empty() && processes_->is_done(under_way_.front().transfer))
    under_way_.pop_front();
  if (under_way_.size() >= kMostUnreported) {
    processes_->wait({&under_way_.front().transfer, 1}, "taking what steps took", patience_);
    under_way_.pop_front();
  }
  Sent& sent = under_way_.emplace_back();
  sent.step = {step};
  sent.transfer = processes_->begin_send(0, Tag::steps, std::as_bytes(std::span(sent.step)));
}

void StepReports::end() {
  const Transfer end = processes_->begin_send(0, Tag::steps, {});
  for (const Sent& sent : under_way_)
    processes_->wait({&sent.transfer, 1}, "taking what steps took", patience_);
  under_way_.clear();
  processes_->wait({&end, 1}, "taking what steps took", patience_);
}

void take_reports(ProcessGroup& processes, std::vector<RankStep>& steps) {
  std::vector<std::byte> message;
  for (int32_t other = 1; other < processes.rank().count; ++other) {
    while (processes.receive_if_there(other, Tag::steps, message)) {
      if (message.size() != sizeof(RankStep))
        fail("{}: {} bytes of what a step took, expected {}", processes.name_of(other), message.size(),
             sizeof(RankStep));
      std::memcpy(&steps.emplace_back(), message.data(), message.size());
    }
  }
}

void end_reports(ProcessGroup& processes, std::chrono::milliseconds patience) {
  constexpr std::chrono::microseconds kPause{100};
  const auto end = std::chrono::steady_clock::now() + patience;
  std::vector<std::byte> message;
  for (int32_t other = 1; other < processes.rank().count; ++other) {
    for (;;) {
      if (processes.receive_if_there(other, Tag::steps, message)) {
        if (message.empty()) break;
        continue;
      }
      processes.check();
      if (std::chrono::steady_clock::now() > end)
        fail("{} did not end in {} ms", processes.name_of(other), patience.count());
      std::this_thread::sleep_for(kPause);
    }
  }
}

}  // namespace minfer
