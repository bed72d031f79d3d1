#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "kernels/error_types.h"
#include "kernels/sampling.h"

namespace minfer::cuda {

/// Whether a row reads tables that outlive its step: its penalties change a logit, or its biases do not fit into the row.
inline bool needs_seat(const SamplingRow& row) {
  const bool has_counts = has_penalties(row) && (!row.history.empty() || row.pending_row >= 0);
  return has_counts || row.biases.size() > size_t{kMaxLooseBiases};
}

/// Which row of the device's sampling tables, its seat, each sequence has, and what of its state is there. A sequence keeps its
/// seat until another one needs it: then the seat goes whose sequence has drawn nothing for the longest time. Since a seat
/// only remembers what the host knows too, losing it costs an upload and nothing else. Host only; one thread.
class SamplingSeats {
 public:
  struct Placement {
    int32_t seat = -1;           ///< -1: the row needs none
    bool is_new = false;         ///< the seat was another's: its counts are to be cleared
    int32_t num_counted = 0;     ///< tokens of the row's history that are counted there
    bool brings_biases = false;  ///< the row's biases are not there
  };

  /// `num_seats`: at least the states of a step.
  explicit SamplingSeats(int32_t num_seats) : seats_(static_cast<size_t>(num_seats)) {}

  /// Before the rows of each step: they do not take one another's seats.
  void begin_step() { ++step_; }

  /// The row's seat, which is taken to hold all of its history and biases from now on.
  Placement place(const SamplingRow& row) {
    if (!needs_seat(row)) return {};
    if (row.state == 0) throw Error("sample: a row with penalties or many biases, but of no sequence");
    Placement placement;
    placement.seat = seat_of(row.state, placement.is_new);
    Seat& seat = seats_[static_cast<size_t>(placement.seat)];
    seat.last_step = step_;
    const auto history = has_penalties(row) ? static_cast<int32_t>(row.history.size()) : 0;
    if (history < seat.num_counted) throw Error("sample: the history of a sequence has shrunk");
    placement.num_counted = seat.num_counted;
    seat.num_counted = history;
    placement.brings_biases = row.biases.size() > std::max(seat.num_biases, size_t{kMaxLooseBiases});
    if (placement.brings_biases) seat.num_biases = row.biases.size();
    return placement;
  }

 private:
  struct Seat {
    uint64_t state = 0;  ///< 0: nobody's
    uint64_t last_step = 0;
    int32_t num_counted = 0;
    size_t num_biases = 0;
  };

  int32_t seat_of(uint64_t state, bool& is_new) {
    const auto found = seat_of_state_.find(state);
    if (found != seat_of_state_.end()) return found->second;
    const auto oldest = std::min_element(
        seats_.begin(), seats_.end(), [](const Seat& a, const Seat& b) { return a.last_step < b.last_step; });
    if (oldest == seats_.end() || oldest->last_step == step_)
      throw Error("sample: a step with rows of more sequences than there are seats");
    seat_of_state_.erase(oldest->state);
    *oldest = {.state = state};
    const auto seat = static_cast<int32_t>(oldest - seats_.begin());
    seat_of_state_.emplace(state, seat);
    is_new = true;
    return seat;
  }

  std::vector<Seat> seats_;
  std::unordered_map<uint64_t, int32_t> seat_of_state_;
  uint64_t step_ = 0;
};

}  // namespace minfer::cuda
