#include <algorithm>
#include <utility>

#include "kernels/base/thread_pool.h"
#include "kernels/comm/host_communicator.h"
#include "kernels/comm/process_group.h"

namespace minfer {
namespace {

using Tag = ProcessGroup::Tag;

/// For sums of at most this many elements, and with two ranks, all send to all and every rank adds: the time of one message. Larger
/// sums take two rounds, so the time of two messages, but carry less: each rank adds up its part of the elements and sends the sums.
constexpr size_t kSmallSum = 8192;

class ProcessCommunicator final : public HostCommunicator {
 public:
  ProcessCommunicator(std::shared_ptr<ProcessGroup> processes, std::chrono::milliseconds patience)
      : processes_(std::move(processes)),
        patience_(patience),
        rank_(processes_->rank()),
        received_(static_cast<size_t>(rank_.count)) {}

  Rank rank() const override { return rank_; }

  void all_reduce(std::span<float> values) override {
    if (rank_.count == 2 || values.size() <= kSmallSum) return reduce_for_itself(values);
    reduce_parts(values);
  }

  void gather(std::span<const float> part, std::span<float> all) override {
    transfers_.clear();
    if (!rank_.is_first()) {
      send(0, Tag::part, part);
    } else {
      std::ranges::copy(part, all.begin());
      for (int32_t other = 1; other < rank_.count; ++other)
        receive(other, Tag::part, all.subspan(static_cast<size_t>(other) * part.size(), part.size()));
    }
    wait("its part of the logits");
  }

  void broadcast(std::span<int32_t> values) override {
    transfers_.clear();
    if (!rank_.is_first()) {
      receive(0, Tag::tokens, values);
    } else {
      for (int32_t other = 1; other < rank_.count; ++other)
        send(other, Tag::tokens, std::span<const int32_t>(values));
    }
    wait("the tokens that were drawn");
  }

 private:
  template <class T>
  void send(int32_t to, Tag tag, std::span<const T> values) {
    transfers_.push_back(processes_->begin_send(to, tag, std::as_bytes(values)));
  }
  template <class T>
  void receive(int32_t from, Tag tag, std::span<T> values) {
    transfers_.push_back(processes_->begin_receive(from, tag, std::as_writable_bytes(values)));
  }
  void wait(std::string_view what) {
    processes_->wait(transfers_, what, patience_);
    transfers_.clear();
  }

  /// sum[i] over all ranks; received_ holds the addends of the others.
  void add_up(std::span<float> own) {
    for (size_t i = 0; i < own.size(); ++i) {
      float sum = rank_.is_first() ? own[i] : received_.front()[i];
      for (int32_t of = 1; of < rank_.count; ++of)
        sum += of == rank_.index ? own[i] : received_[static_cast<size_t>(of)][i];
      own[i] = sum;
    }
  }

  void receive_addends(size_t count) {
    for (int32_t other = 0; other < rank_.count; ++other) {
      if (other == rank_.index) continue;
      std::vector<float>& addends = received_[static_cast<size_t>(other)];
      if (addends.size() < count) addends.resize(count);
      receive(other, Tag::sum, std::span(addends).first(count));
    }
  }

  void reduce_for_itself(std::span<float> values) {
    transfers_.clear();
    receive_addends(values.size());
    for (int32_t other = 0; other < rank_.count; ++other)
      if (other != rank_.index) send(other, Tag::sum, std::span<const float>(values));
    wait("its part of a sum");
    add_up(values);
  }

  void reduce_parts(std::span<float> values) {
    const auto part = [&](int32_t of) {
      const IndexRange range = part_of(static_cast<int64_t>(values.size()), of, rank_.count);
      return values.subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.end - range.begin));
    };
    const std::span<float> own = part(rank_.index);
    transfers_.clear();
    receive_addends(own.size());
    for (int32_t other = 0; other < rank_.count; ++other)
      if (other != rank_.index) send(other, Tag::sum, std::span<const float>(part(other)));
    wait("its part of a sum");
    add_up(own);
    for (int32_t other = 0; other < rank_.count; ++other)
      if (other != rank_.index) receive(other, Tag::sum, part(other));
    for (int32_t other = 0; other < rank_.count; ++other)
      if (other != rank_.index) send(other, Tag::sum, std::span<const float>(own));
    wait("its sums");
  }

  std::shared_ptr<ProcessGroup> processes_;
  std::chrono::milliseconds patience_;
  Rank rank_;
  std::vector<std::vector<float>> received_;  ///< addends of each other rank
  std::vector<Transfer> transfers_;
};

}  // namespace

std::unique_ptr<HostCommunicator> make_process_communicator(std::shared_ptr<ProcessGroup> processes,
                                                            std::chrono::milliseconds patience) {
  return std::make_unique<ProcessCommunicator>(std::move(processes), patience);
}

}  // namespace minfer
