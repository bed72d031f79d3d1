// Which sequences' counts and biases are on the device, and what must be copied there.
#include "kernels/cuda/sampling/sampling_slots.h"

#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace minfer {
namespace {

using cuda::SamplingSlots;

/// A sequence with a penalty.
struct Counted {
  uint64_t state;
  std::vector<int32_t> history;
  std::vector<LogitBias> biases;

  SamplingRow row() const {
    SamplingRow row;
    row.repetition_penalty = 1.1f;
    row.state = state;
    row.history = history;
    row.num_prompt = 1;
    row.biases = biases;
    return row;
  }
};

TEST(SamplingSlotsTest, OnlyRowsWithPenaltiesOrManyBiasesTakeASlot) {
  SamplingSlots slots(1);
  slots.begin_step();
  SamplingRow row;
  row.state = 1;
  EXPECT_EQ(slots.place(row).slot, -1);
  row.repetition_penalty = 1.1f;
  EXPECT_EQ(slots.place(row).slot, -1) << "nothing is seen yet, so nothing is penalised";
  row.repetition_penalty = 1.0f;
  std::vector<LogitBias> biases(kMaxLooseBiases, {3, 1.0f});
  row.biases = biases;
  EXPECT_EQ(slots.place(row).slot, -1);
  biases.push_back({4, 1.0f});
  row.biases = biases;
  const SamplingSlots::Placement placement = slots.place(row);
  EXPECT_EQ(placement.slot, 0);
  EXPECT_TRUE(placement.is_new);
  EXPECT_TRUE(placement.brings_biases);
}

TEST(SamplingSlotsTest, APendingTokenAloneIsReasonEnough) {
  SamplingSlots slots(1);
  slots.begin_step();
  SamplingRow row;
  row.state = 1;
  row.frequency_penalty = 1.0f;
  row.pending_row = 0;
  EXPECT_EQ(slots.place(row).slot, 0);
}

TEST(SamplingSlotsTest, BringsTheHistoryOnceThenWhatIsNew) {
  SamplingSlots slots(2);
  Counted sequence{.state = 7, .history = {1, 2, 3}, .biases = {}};
  slots.begin_step();
  SamplingSlots::Placement placement = slots.place(sequence.row());
  EXPECT_TRUE(placement.is_new);
  EXPECT_EQ(placement.num_counted, 0);
  const int32_t slot = placement.slot;
  for (int32_t step = 0; step < 5; ++step) {
    sequence.history.push_back(step);
    slots.begin_step();
    placement = slots.place(sequence.row());
    EXPECT_EQ(placement.slot, slot);
    EXPECT_FALSE(placement.is_new);
    EXPECT_EQ(placement.num_counted, 3 + step);
  }
}

TEST(SamplingSlotsTest, BringsBiasesOnceAndTheirPrefixNever) {
  SamplingSlots slots(1);
  Counted sequence{.state = 7, .history = {1}, .biases = std::vector<LogitBias>(10, {0, 1.0f})};
  slots.begin_step();
  EXPECT_TRUE(slots.place(sequence.row()).brings_biases);
  slots.begin_step();
  EXPECT_FALSE(slots.place(sequence.row()).brings_biases);
  sequence.biases.resize(6);
  slots.begin_step();
  EXPECT_FALSE(slots.place(sequence.row()).brings_biases);
  const Counted other{.state = 8, .history = {1}, .biases = {}};
  slots.begin_step();
  EXPECT_TRUE(slots.place(other.row()).is_new);
  slots.begin_step();
  EXPECT_TRUE(slots.place(sequence.row()).brings_biases) << "its slot was another's since";
}

TEST(SamplingSlotsTest, TheSlotUsedLongestAgoIsGivenAway) {
  SamplingSlots slots(2);
  const auto place = [&](uint64_t state) { return slots.place(Counted{state, {1}, {}}.row()); };
  slots.begin_step();
  const int32_t first = place(1).slot;
  const int32_t second = place(2).slot;
  slots.begin_step();
  place(1);
  slots.begin_step();
  const SamplingSlots::Placement third = place(3);
  EXPECT_EQ(third.slot, second);
  EXPECT_TRUE(third.is_new);
  EXPECT_EQ(third.num_counted, 0);
  EXPECT_EQ(place(1).slot, first);
  EXPECT_THROW(place(2), Error) << "no slot is taken from a row of the same step";
}

TEST(SamplingSlotsTest, RowsOfNoSequenceAndShrunkHistoriesAreRefused) {
  SamplingSlots slots(1);
  slots.begin_step();
  EXPECT_THROW(slots.place(Counted{0, {1, 2}, {}}.row()), Error);
  slots.place(Counted{1, {1, 2}, {}}.row());
  slots.begin_step();
  EXPECT_THROW(slots.place(Counted{1, {1}, {}}.row()), Error);
}

/// Slots as a device would keep them: the copied data alone makes the counts of every row right.
TEST(SamplingSlotsTest, WhatIsBroughtIsAlwaysEnough) {
  constexpr int32_t kSlots = 5;
  std::mt19937 random(3);
  const auto below = [&](size_t n) { return random() % n; };
  SamplingSlots slots(kSlots);
  std::vector<std::vector<int32_t>> device(kSlots);
  std::vector<Counted> sequences;
  for (uint64_t state = 1; state <= 9; ++state)
    sequences.push_back({state, std::vector<int32_t>(1 + below(20), static_cast<int32_t>(state)), {}});
  int num_evicted = 0;
  for (int step = 0; step < 500; ++step) {
    slots.begin_step();
    std::set<size_t> chosen;
    while (chosen.size() < kSlots)
      chosen.insert(below(sequences.size()));
    for (const size_t i : chosen) {
      sequences[i].history.push_back(step);
      const SamplingSlots::Placement placement = slots.place(sequences[i].row());
      std::vector<int32_t>& on_device = device[static_cast<size_t>(placement.slot)];
      if (placement.is_new) {
        num_evicted += !on_device.empty();
        on_device.clear();
      }
      ASSERT_EQ(std::ssize(on_device), placement.num_counted);
      on_device.insert(on_device.end(), sequences[i].history.begin() + placement.num_counted,
                       sequences[i].history.end());
      ASSERT_EQ(on_device, sequences[i].history) << "step " << step;
    }
  }
  EXPECT_GT(num_evicted, 100);
}

}  // namespace
}  // namespace minfer
