#include <algorithm>
#include <deque>
#include <utility>

#include "engine/ranks/rank_channel.h"
#include "kernels/comm/process_group.h"

namespace minfer {
namespace {

using Tag = ProcessGroup::Tag;

/// Orders that the others may not have taken yet: more than the steps that a device is ahead. With more, a rank does not follow.
constexpr size_t kMostUnderWay = 64;

class ProcessChannel final : public RankChannel {
 public:
  ProcessChannel(std::shared_ptr<ProcessGroup> processes, std::chrono::milliseconds patience)
      : processes_(std::move(processes)), patience_(patience) {}

  Rank rank() const override { return processes_->rank(); }

  void send(std::span<const std::byte> message) override {
    while (!under_way_.empty() && has_left(under_way_.front()))
      under_way_.pop_front();
    if (under_way_.size() >= kMostUnderWay) {
      processes_->wait(under_way_.front().transfers, "taking its orders", patience_);
      under_way_.pop_front();
    }
    Sent& sent = under_way_.emplace_back();
    sent.bytes.assign(message.begin(), message.end());
    for (int32_t other = 1; other < rank().count; ++other)
      sent.transfers.push_back(processes_->begin_send(other, Tag::order, sent.bytes));
  }

  std::span<const std::byte> receive() override {
    processes_->receive(0, Tag::order, message_);
    return message_;
  }

  /// The first rank's place to meet: it has all values, and tells the least.
  int64_t least(int64_t value) override {
    if (!rank().is_first()) {
      const Transfer sent = processes_->begin_send(0, Tag::meeting, bytes_of(value));
      wait({&sent, 1});
      int64_t least = 0;
      const Transfer received =
          processes_->begin_receive(0, Tag::meeting, std::as_writable_bytes(std::span(&least, 1)));
      wait({&received, 1});
      return least;
    }
    std::vector<int64_t> values(static_cast<size_t>(rank().count), value);
    std::vector<Transfer> transfers;
    for (int32_t other = 1; other < rank().count; ++other)
      transfers.push_back(processes_->begin_receive(
          other, Tag::meeting, std::as_writable_bytes(std::span(&values[static_cast<size_t>(other)], 1))));
    wait(transfers);
    const int64_t least = std::ranges::min(values);
    transfers.clear();
    for (int32_t other = 1; other < rank().count; ++other)
      transfers.push_back(processes_->begin_send(other, Tag::meeting, bytes_of(least)));
    wait(transfers);
    return least;
  }

 private:
  struct Sent {
    std::vector<std::byte> bytes;
    std::vector<Transfer> transfers;  ///< those that are not known to be done
  };

  static std::span<const std::byte> bytes_of(const int64_t& value) {
    return std::as_bytes(std::span(&value, 1));
  }

  bool has_left(Sent& sent) {
    std::erase_if(sent.transfers, [this](Transfer transfer) { return processes_->is_done(transfer); });
    return sent.transfers.empty();
  }

  /// However long a model takes to load.
  void wait(std::span<const Transfer> transfers) {
    processes_->wait(transfers, "getting ready", ProcessGroup::kNoLimit);
  }

  std::shared_ptr<ProcessGroup> processes_;
  std::chrono::milliseconds patience_;
  std::deque<Sent> under_way_;
  std::vector<std::byte> message_;
};

}  // namespace

std::unique_ptr<RankChannel> make_process_channel(std::shared_ptr<ProcessGroup> processes,
                                                  std::chrono::milliseconds patience) {
  return std::make_unique<ProcessChannel>(std::move(processes), patience);
}

}  // namespace minfer
