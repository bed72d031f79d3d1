#include "engine/ranks/step_message.h"

#include <algorithm>
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
  int32_t unused = 0;  ///< no byte is left undefined
  int64_t step = -1;
  int64_t sent_ns = 0;
  int32_t num_tokens = 0;
  int32_t num_sequences = 0;
  int32_t num_decode_sequences = 0;
  int32_t num_decode_tokens = 0;
  int32_t num_logit_rows = 0;
  int32_t num_changes = 0;
  int32_t followed_rows = 0;
  int32_t shares_tokens = 0;
  int32_t num_state_restores = 0;
  int32_t num_state_saves = 0;
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

LaunchHeader header_of(std::span<const std::byte> message) {
  LaunchHeader header;
  Taker(message).take(&header, 1);
  return header;
}

}  // namespace

std::span<const std::byte> RankOrders::launch(const StepArgs& step) {
  const ForwardBatch& batch = step.batch;
  const LaunchHeader header{.stamped = step.stamps != nullptr,
                            .traced = traced_,
                            .step = step.step,
                            .sent_ns = now_ns(),
                            .num_tokens = batch.num_tokens,
                            .num_sequences = batch.num_sequences,
                            .num_decode_sequences = batch.num_decode_sequences,
                            .num_decode_tokens = batch.num_decode_tokens,
                            .num_logit_rows = batch.num_logit_rows,
                            .num_changes = static_cast<int32_t>(batch.changes.size()),
                            .followed_rows = static_cast<int32_t>(step.rows.size()) + step.later_rows,
                            .shares_tokens = step.share_op >= 0,
                            .num_state_restores = static_cast<int32_t>(batch.state_restores.size()),
                            .num_state_saves = static_cast<int32_t>(batch.state_saves.size())};
  const auto tokens = static_cast<size_t>(batch.num_tokens);
  const auto sequences = static_cast<size_t>(batch.num_sequences);
  bytes_.clear();
  append(bytes_, &header, 1);
  append(bytes_, batch.token_ids, tokens);
  append(bytes_, batch.positions, tokens);
  append(bytes_, batch.slots, tokens);
  if (batch.window_row > 0) append(bytes_, batch.window_slots, tokens);
  append(bytes_, batch.query_start, sequences + 1);
  append(bytes_, batch.context_len, sequences);
  if (batch.state_slots != nullptr) append(bytes_, batch.state_slots, sequences);
  append(bytes_, batch.logit_rows, static_cast<size_t>(batch.num_logit_rows));
  append(bytes_, batch.state_restores.data(), batch.state_restores.size());
  append(bytes_, batch.state_saves.data(), batch.state_saves.size());
  append(bytes_, batch.changes.data(), batch.changes.size());
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

bool is_stamped(std::span<const std::byte> message) {
  return header_of(message).stamped != 0;
}

bool is_traced(std::span<const std::byte> message) {
  return header_of(message).traced != 0;
}

int64_t sent_ns(std::span<const std::byte> message) {
  return header_of(message).sent_ns;
}

RankSteps::RankSteps(const EngineOptions& options)
    : batch_(HostBatch::of(options)), max_rows_(static_cast<size_t>(batch_.num_rows())) {}

StepArgs RankSteps::read(std::span<const std::byte> message) {
  Taker taker(message);
  LaunchHeader header;
  taker.take(&header, 1);
  batch_.num_tokens = header.num_tokens;
  batch_.num_sequences = header.num_sequences;
  batch_.num_decode_sequences = header.num_decode_sequences;
  batch_.num_decode_tokens = header.num_decode_tokens;
  batch_.num_logit_rows = header.num_logit_rows;
  taker.take(batch_.token_ids, header.num_tokens);
  taker.take(batch_.positions, header.num_tokens);
  taker.take(batch_.slots, header.num_tokens);
  if (batch_.window_row > 0) taker.take(batch_.window_slots, header.num_tokens);
  taker.take(batch_.query_start, header.num_sequences + 1);
  taker.take(batch_.context_len, header.num_sequences);
  if (!batch_.state_slots.empty()) taker.take(batch_.state_slots, header.num_sequences);
  taker.take(batch_.logit_rows, header.num_logit_rows);
  const auto take_up_to = [&](auto& values, int32_t count) {  // one a row of the block table at the most
    values.resize(std::min(static_cast<size_t>(std::max(0, count)), max_rows_));
    taker.take(values, count);
  };
  take_up_to(batch_.state_restores, header.num_state_restores);
  take_up_to(batch_.state_saves, header.num_state_saves);
  take_up_to(batch_.changes, header.num_changes);
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
  return {.step = header.step,
          .batch = batch_.view(),
          .share_op = header.shares_tokens != 0 ? 0 : -1,
          .followed_rows = header.followed_rows};
}

}  // namespace minfer
