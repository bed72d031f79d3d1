#include "engine/ranks/step_message.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "kernels/base/error.h"

namespace minfer {
namespace {

/// The header of a launch order.
struct LaunchHeader {
  RankOrder order = RankOrder::launch;
  int32_t stamped = 0;
  int32_t traced = 0;
  int32_t followed_rows = 0;
  int64_t step = -1;
  int64_t sent_ns = 0;
  int32_t shares_tokens = 0;
  int32_t unused = 0;  ///< no byte is left undefined
};
static_assert(std::is_trivially_copyable_v<LaunchHeader> && std::is_trivially_copyable_v<BlockTableChange> &&
              std::is_trivially_copyable_v<StateCopy>);

template <class T>
void append(std::vector<std::byte>& bytes, const T* values, size_t count) {
  const size_t begin = bytes.size();
  bytes.resize(begin + count * sizeof(T));
  if (count > 0) std::memcpy(bytes.data() + begin, values, count * sizeof(T));
}

/// Takes values off the front of a message.
class Taker {
 public:
  explicit Taker(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  void take(T* values, size_t count) {
    if (count > bytes_.size() / sizeof(T))
      fail("message of a rank: {} bytes left, expected {} values", bytes_.size(), count);
    if (count > 0) std::memcpy(values, bytes_.data(), count * sizeof(T));
    bytes_ = bytes_.subspan(count * sizeof(T));
  }
  template <class T>
  void take(std::vector<T>& values, int32_t count) {
    if (count < 0 || static_cast<size_t>(count) > values.size())
      fail("message of a rank: {} values, expected 0 to {}", count, values.size());
    take(values.data(), static_cast<size_t>(count));
  }

 private:
  std::span<const std::byte> bytes_;
};

/// The counts of a batch.
template <class Batch>
auto counts_of(Batch& batch) {
  return std::array{&batch.num_tokens, &batch.num_sequences, &batch.num_decode_sequences,
                    &batch.num_decode_tokens, &batch.num_logit_rows};
}

/// Calls with_array(array, number of its elements) for each array that a step brings whole.
template <class Batch, class WithArray>
void for_each_array(Batch& batch, bool has_states, const WithArray& with_array) {
  with_array(batch.token_ids, batch.num_tokens);
  with_array(batch.positions, batch.num_tokens);
  with_array(batch.slots, batch.num_tokens);
  if (batch.window_row > 0) with_array(batch.window_slots, batch.num_tokens);
  with_array(batch.query_start, batch.num_sequences + 1);
  with_array(batch.context_len, batch.num_sequences);
  if (has_states) with_array(batch.state_slots, batch.num_sequences);
  with_array(batch.logit_rows, batch.num_logit_rows);
}

}  // namespace

std::span<const std::byte> RankOrders::launch(const StepArgs& step) {
  const ForwardBatch& batch = step.batch;
  const LaunchHeader header{.stamped = step.stamps != nullptr,
                            .traced = traced_,
                            .followed_rows = static_cast<int32_t>(step.rows.size()) + step.later_rows,
                            .step = step.step,
                            .sent_ns = now_ns(),
                            .shares_tokens = step.share_op >= 0};
  bytes_.clear();
  append(bytes_, &header, 1);
  for (const int32_t* count : counts_of(batch))
    append(bytes_, count, 1);
  for_each_array(batch, batch.state_slots != nullptr, [this](const int32_t* values, int32_t count) {
    append(bytes_, values, static_cast<size_t>(count));
  });
  const auto append_list = [this](const auto& values) {
    const auto count = static_cast<int32_t>(values.size());
    append(bytes_, &count, 1);
    append(bytes_, values.data(), values.size());
  };
  append_list(batch.state_restores);
  append_list(batch.state_saves);
  append_list(batch.changes);
  for (const BlockTableChange& change : batch.changes) {
    const int64_t first = int64_t{change.row} * batch.max_blocks + change.first;
    append(bytes_, batch.block_table + first, static_cast<size_t>(change.count));
  }
  return bytes_;
}

std::span<const std::byte> RankOrders::plain(RankOrder order) {
  bytes_.clear();
  append(bytes_, &order, 1);
  return bytes_;
}

RankOrder order_of(std::span<const std::byte> message) {
  RankOrder order{};
  Taker(message).take(&order, 1);
  return order;
}

RankSteps::RankSteps(const EngineOptions& options)
    : batch_(HostBatch::of(options)), max_rows_(static_cast<size_t>(batch_.num_rows())) {}

LaunchOrder RankSteps::read(std::span<const std::byte> message) {
  Taker taker(message);
  LaunchHeader header;
  taker.take(&header, 1);
  for (int32_t* count : counts_of(batch_))
    taker.take(count, 1);
  for_each_array(batch_, !batch_.state_slots.empty(),
                 [&taker](std::vector<int32_t>& values, int32_t count) { taker.take(values, count); });
  const auto take_list = [&](auto& values) {  // one a row of the block table at the most
    int32_t count = 0;
    taker.take(&count, 1);
    values.resize(std::min(static_cast<size_t>(std::max(0, count)), max_rows_));
    taker.take(values, count);
  };
  take_list(batch_.state_restores);
  take_list(batch_.state_saves);
  take_list(batch_.changes);
  for (const BlockTableChange& change : batch_.changes) {
    const bool fits = change.row >= 0 && static_cast<size_t>(change.row) < max_rows_ && change.first >= 0 &&
                      change.count >= 0 && change.first <= batch_.max_blocks - change.count;
    if (!fits)
      fail("message of a rank: blocks {} to {} of row {} do not exist", change.first,
           change.first + change.count, change.row);
    const size_t first = static_cast<size_t>(change.row) * static_cast<size_t>(batch_.max_blocks) +
                         static_cast<size_t>(change.first);
    taker.take(batch_.block_table.data() + first, static_cast<size_t>(change.count));
  }
  // The ops are the reader's own; 0 stands for "there are some".
  return {.step = {.step = header.step,
                   .batch = batch_.view(),
                   .share_op = header.shares_tokens != 0 ? 0 : -1,
                   .followed_rows = header.followed_rows},
          .is_stamped = header.stamped != 0,
          .is_traced = header.traced != 0,
          .sent_ns = header.sent_ns};
}

}  // namespace minfer
