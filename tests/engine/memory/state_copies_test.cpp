// Copies of states for the prefix cache, without a model: where they are made, their slots, and whose states sequences continue from.
#include "engine/memory/state_copies.h"

#include <algorithm>
#include <deque>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/engine/scheduler_steps.h"
#include "tests/support/models/token_texts.h"

namespace minfer {
namespace {

using test::joined;
using test::SchedulerSteps;

std::vector<TokenId> counted_prompt(TokenId first, int32_t length) {
  std::vector<TokenId> prompt(static_cast<size_t>(length));
  std::iota(prompt.begin(), prompt.end(), first);
  return prompt;
}

/// The places of all copies of a prompt that begins with a prefix of `hit` tokens.
std::vector<int64_t> places(const StateCopyRule& rule, int32_t prompt, int32_t hit = 0, int32_t shared = 0) {
  StateCopyFacts facts{
      .block_size = 16, .num_scheduled = hit, .last_copy = hit, .num_prefill = prompt, .num_shared = shared};
  std::vector<int64_t> found;
  for (int64_t at = next_state_copy(rule, facts); at <= prompt; at = next_state_copy(rule, facts)) {
    found.push_back(at);
    facts.num_scheduled = facts.last_copy = static_cast<int32_t>(at);
  }
  return found;
}

TEST(StateCopyRule, APromptsEndIsItsLastBlockBeforeWhatTheNextTurnReopens) {
  const StateCopyRule rule;
  EXPECT_EQ(places(rule, 1000), (std::vector<int64_t>{992}));
  EXPECT_EQ(places(rule, 999), (std::vector<int64_t>{976})) << "its last 7 tokens may not come again";
  EXPECT_EQ(places(rule, 1007), (std::vector<int64_t>{992}));
  EXPECT_EQ(places(rule, 1008), (std::vector<int64_t>{1000 / 16 * 16}));
}

TEST(StateCopyRule, ShortPromptsAreNotWorthOne) {
  EXPECT_EQ(places({}, 71), (std::vector<int64_t>{}));
  EXPECT_EQ(places({}, 72), (std::vector<int64_t>{64}));
  EXPECT_EQ(places({}, 1, 0), (std::vector<int64_t>{}));
  EXPECT_EQ(places({}, 1040, 992), (std::vector<int64_t>{})) << "too near to the prefix that was found";
  EXPECT_EQ(places({}, 1064, 992), (std::vector<int64_t>{1056}));
}

TEST(StateCopyRule, LongPromptsHaveSomeOnTheWay) {
  EXPECT_EQ(places({}, 10000), (std::vector<int64_t>{4096, 8192, 9984}));
  EXPECT_EQ(places({}, 10000, 9984), (std::vector<int64_t>{}));
  EXPECT_EQ(places({}, 8200), (std::vector<int64_t>{4096, 8192}));
  EXPECT_EQ(places({.interval = 100, .reopened_tokens = 8, .least_tokens = 64}, 300),
            (std::vector<int64_t>{112, 224, 288}))
      << "whole blocks";
}

TEST(StateCopyRule, WhatPromptsHaveInCommonIsAPlaceOfItsOwn) {
  EXPECT_EQ(places({}, 1500, 0, 800), (std::vector<int64_t>{800, 1488}));
  EXPECT_EQ(places({}, 1500, 800, 800), (std::vector<int64_t>{1488}));
  EXPECT_EQ(places({}, 1500, 0, 1472), (std::vector<int64_t>{1472})) << "the end is too near";
  EXPECT_EQ(places({}, 1500, 0, 48), (std::vector<int64_t>{1488}));
}

TEST(StateCopies, TheOneUsedLongestAgoGoesFirst) {
  StateCopies copies(4, 2);
  Sequence sequence("a", {1}, 1);
  const int32_t first = copies.begin(sequence);
  copies.keep(first, 11);
  const int32_t second = copies.begin(sequence);
  copies.keep(second, 12);
  EXPECT_EQ(first + second, 4 + 5);
  EXPECT_EQ(copies.use(11), first);
  const int32_t third = copies.begin(sequence);
  EXPECT_EQ(third, second);
  EXPECT_FALSE(copies.contains(12)) << "its slot is written";
  EXPECT_TRUE(copies.contains(11));
  copies.keep(third, 13);
  EXPECT_TRUE(copies.contains(13));
  EXPECT_THROW(copies.use(12), std::logic_error);
  EXPECT_THROW(copies.keep(third, 14), std::logic_error);
  copies.check();
}

TEST(StateCopies, WhatIsBeingWrittenIsNeitherFoundNorTaken) {
  StateCopies copies(0, 2);
  Sequence one("a", {1}, 1), other("b", {1}, 1);
  const int32_t kept = copies.begin(one);
  copies.keep(kept, 11);
  const int32_t writing = copies.begin(one);
  EXPECT_EQ(copies.begin(other), kept) << "the other one is being written";
  EXPECT_FALSE(copies.has_room());
  EXPECT_THROW(copies.begin(other), std::logic_error);
  copies.abandon(one);
  EXPECT_TRUE(copies.has_room());
  EXPECT_EQ(copies.begin(other), writing);
  copies.abandon(other);
  EXPECT_EQ(copies.num_writing(), 0);
  EXPECT_EQ(copies.num_kept(), 0);
  copies.check();
}

TEST(StateCopies, OfTwoOfOnePrefixOneIsKept) {
  StateCopies copies(0, 3);
  Sequence one("a", {1}, 1), other("b", {1}, 1);
  const int32_t first = copies.begin(one), second = copies.begin(other);
  copies.keep(first, 11);
  copies.keep(second, 11);
  EXPECT_EQ(copies.num_kept(), 1);
  EXPECT_EQ(copies.use(11), first);
  copies.check();
}

TEST(StateCopies, NoneOfModelsWithoutStates) {
  const StateCopies copies(0, 0);
  EXPECT_FALSE(copies.has_room());
  EXPECT_FALSE(copies.contains(1));
  copies.check();
}

/// Options with blocks of 4 tokens, and copies at the ends of prompts of 8 tokens or more.
EngineOptions copying_options() {
  EngineOptions options = test::small_options();
  options.num_blocks = 64;
  options.max_num_batched_tokens = 32;
  options.num_state_slots = 4;
  options.is_recurrent = true;
  options.num_state_copies = 4;
  options.state_copy_rule = {.interval = 40, .reopened_tokens = 2, .least_tokens = 8};
  return options;
}

TEST(StateCopyScheduling, PiecesOfPromptsEndWhereCopiesAreMade) {
  SchedulerSteps steps(copying_options());
  steps.add("a", 16, 2);
  EXPECT_EQ(steps.schedule(), "| a:0+12");
  ASSERT_EQ(steps.batch().state_saves.size(), 1u);
  const StateCopy save = steps.batch().state_saves[0];
  EXPECT_EQ(save.from, steps["a"].state_slot);
  EXPECT_GE(save.to, 4) << "behind the slots of sequences";
  EXPECT_EQ(steps.scheduler().state_copies().num_kept(), 0) << "not before the step is committed";
  steps.commit();
  EXPECT_EQ(steps.scheduler().state_copies().num_kept(), 1);
  EXPECT_EQ(steps.step(), "| a:12+4*");
  EXPECT_TRUE(steps.batch().state_saves.empty());
  steps.add("b", 9, 2);
  EXPECT_EQ(steps.step(), "a:16+1* | b:0+9*") << "too short";
  EXPECT_TRUE(steps.batch().state_restores.empty());
}

TEST(StateCopyScheduling, ATurnBeginsWithTheCopyOfTheOneBefore) {
  SchedulerSteps steps(copying_options());
  const std::vector<TokenId> prompt = counted_prompt(1000, 15);
  steps.add_prompt("a", prompt, 6);
  EXPECT_EQ(steps.step(), "| a:0+12");
  while (steps.scheduler().has_work())
    steps.step();
  steps.add_prompt("b", joined(steps["a"].tokens, counted_prompt(2000, 10)), 2);
  EXPECT_EQ(steps.step(), "| b:12+16") << "blocks of the answer have no copy, and are no branch";
  ASSERT_EQ(steps.batch().state_restores.size(), 1u);
  EXPECT_EQ(steps.batch().state_restores[0].to, steps["b"].state_slot);
  EXPECT_EQ(steps["b"].num_cached_tokens, 12);
  EXPECT_EQ(steps.batch().prefix_hit_tokens, 12);
  EXPECT_EQ(steps.step(), "| b:28+3*");
}

TEST(StateCopyScheduling, TheThirdPromptFindsWhatTheFirstTwoHaveInCommon) {
  SchedulerSteps steps(copying_options());
  const std::vector<TokenId> instructions = counted_prompt(1000, 10);
  for (const char* id : {"a", "b", "c"}) {
    steps.add_prompt(id, joined(instructions, counted_prompt(1000 * id[0], 12)), 1);
    std::string text;
    while (steps.scheduler().has_work())
      text += steps.step() + ' ';
    EXPECT_EQ(text, *id == 'a'   ? "| a:0+20 | a:20+2* "
                    : *id == 'b' ? "| b:0+8 | b:8+12 | b:20+2* "
                                 : "| c:8+12 | c:20+2* ");
    EXPECT_EQ(steps[id].num_cached_tokens, *id == 'c' ? 8 : 0);
  }
}

TEST(StateCopyScheduling, BlocksWithoutACopyAreNoPrefix) {
  EngineOptions options = copying_options();
  for (const int32_t num_copies : {0, 1}) {
    options.num_state_copies = num_copies;
    SchedulerSteps steps(options);
    for (const char* id : {"a", "b", "a again"}) {
      steps.add_prompt(id, counted_prompt(1000 * id[0], 16), 1);
      while (steps.scheduler().has_work())
        steps.step();
      EXPECT_EQ(steps[id].num_cached_tokens, 0) << "of the only one its copy was taken";
    }
    steps.add_prompt("a at last", counted_prompt(1000 * 'a', 16), 1);
    steps.step();
    EXPECT_EQ(steps["a at last"].num_cached_tokens, num_copies * 12);
  }
}

TEST(StateCopyScheduling, SaltsAndScoredPromptsAreApart) {
  SchedulerSteps steps(copying_options());
  const std::vector<TokenId> prompt = counted_prompt(1000, 16);
  steps.add_prompt("scored", prompt, 1, 0, true);
  EXPECT_EQ(steps.step(), "| scored:0+16*");
  steps.add_prompt("plain", prompt, 1);
  EXPECT_EQ(steps.step(), "| plain:0+12");
  steps.step();
  Sequence salted("salted", prompt, 1);
  salted.cache_salt = "salt";
  steps.scheduler().enqueue(salted);
  EXPECT_EQ(steps.step(), "| salted:0+12");
  steps.scheduler().finish(salted, FinishReason::cancelled);
  steps.add_prompt("scored again", prompt, 1, 0, true);
  EXPECT_EQ(steps.step(), "| scored again:0+16*");
}

TEST(StateCopyScheduling, AnswersHaveCopiesWithoutACut) {
  SchedulerSteps steps(copying_options());
  steps.add("a", 10, 40);
  while (steps.scheduler().has_work()) {
    steps.step();
    const bool is_at = steps.batch().sequences[0].first_token + steps.batch().sequences[0].num_tokens == 40;
    EXPECT_EQ(steps.batch().state_saves.size(), (steps["a"].num_output_tokens() == 0 || is_at) ? 1u : 0u);
  }
}

/// Slots as memory of the tokens that they have seen, in the order in which steps are launched: each sequence must continue from its own.
class SlotMemory {
 public:
  explicit SlotMemory(int32_t num_slots) : slots_(static_cast<size_t>(num_slots), std::vector<TokenId>{-1}) {}

  /// `tokens`: all tokens of each sequence, also drawn ones. Counts the copies that were read.
  void run(const ScheduledBatch& batch, const std::map<const Sequence*, std::vector<TokenId>>& tokens) {
    for (const StateCopy& copy : batch.state_restores)
      at(copy.to) = at(copy.from);
    for (const ScheduledSequence& entry : batch.sequences) {
      const std::vector<TokenId>& all = tokens.at(entry.sequence);
      std::vector<TokenId>& state = at(entry.sequence->state_slot);
      if (entry.first_token == 0) state.clear();
      ASSERT_EQ(state, std::vector<TokenId>(all.begin(), all.begin() + entry.first_token));
      state.insert(state.end(), all.begin() + entry.first_token,
                   all.begin() + entry.first_token + entry.num_tokens);
    }
    for (const StateCopy& copy : batch.state_saves)
      at(copy.to) = at(copy.from);
  }

 private:
  std::vector<TokenId>& at(int32_t slot) { return slots_.at(static_cast<size_t>(slot)); }
  std::vector<std::vector<TokenId>> slots_;
};

/// Conversations with common beginnings that end, are cancelled and are preempted in random order, with few copies.
TEST(StateCopyScheduling, SequencesGoOnFromTheirOwnStatesWhateverHappens) {
  for (const int32_t steps_ahead : {0, 1}) {
    EngineOptions options = copying_options();
    options.steps_ahead = steps_ahead;
    options.num_blocks = 28;
    options.max_num_batched_tokens = 20;
    options.num_state_copies = 5;
    BlockManager blocks(block_manager_options(options));
    Scheduler scheduler(options, blocks);
    SlotMemory memory(options.num_state_slots + 5);
    std::vector<std::unique_ptr<Sequence>> sequences;
    std::map<const Sequence*, std::vector<TokenId>> tokens;
    struct Step {
      ScheduledBatch batch;
      std::vector<std::vector<TokenId>> drawn;
    };
    std::deque<Step> open;
    std::vector<std::vector<TokenId>> said{counted_prompt(100, 10), counted_prompt(200, 21)};
    std::mt19937 random(7);
    int32_t num_preempted = 0, num_hits = 0, num_cancelled = 0;
    const auto commit = [&](const Step& step) {
      for (size_t i = 0; i < step.batch.sequences.size(); ++i) {
        const ScheduledSequence& entry = step.batch.sequences[i];
        if (!entry.is_current()) continue;
        scheduler.commit(entry, step.drawn[i]);
        Sequence& sequence = *entry.sequence;
        ASSERT_TRUE(
            std::ranges::equal(sequence.tokens, std::span(tokens[&sequence]).first(sequence.tokens.size())));
        if (!sequence.reached_max_tokens()) continue;
        said.push_back(sequence.tokens);
        scheduler.finish(sequence, FinishReason::length);
      }
    };
    for (int32_t round = 0; round < 4000; ++round) {
      if (random() % 5 == 0 && scheduler.num_waiting() < 6) {
        const std::vector<TokenId>& before = said[random() % said.size()];
        const size_t kept = random() % 3 == 0 ? random() % before.size() : before.size();
        std::vector<TokenId> prompt(before.begin(),
                                    before.begin() + static_cast<ptrdiff_t>(std::min<size_t>(kept, 30)));
        prompt = joined(prompt, counted_prompt(1000 + 3 * round, 1 + static_cast<int32_t>(random() % 12)));
        sequences.push_back(std::make_unique<Sequence>("", prompt, 1 + static_cast<int32_t>(random() % 20)));
        tokens[sequences.back().get()] = prompt;
        scheduler.enqueue(*sequences.back());
      }
      if (random() % 24 == 0 && !sequences.empty()) {
        Sequence& any = *sequences[sequences.size() - 1 - random() % std::min<size_t>(sequences.size(), 6)];
        num_cancelled += any.status == SequenceStatus::running;
        scheduler.finish(any, FinishReason::cancelled);
      }
      Step step{scheduler.schedule(), {}};
      num_preempted += step.batch.num_preempted;
      num_hits += static_cast<int32_t>(step.batch.state_restores.size());
      memory.run(step.batch, tokens);
      if (HasFatalFailure()) return;
      for (const ScheduledSequence& entry : step.batch.sequences) {
        auto& drawn = step.drawn.emplace_back();
        std::vector<TokenId>& all = tokens[entry.sequence];
        if (entry.num_drawn() == 0) continue;
        // A drawn token depends only on the tokens before it: it is the same if it is computed again.
        const auto end = static_cast<size_t>(entry.first_token + entry.num_tokens);
        drawn.push_back(all[end - 1] * 31 % 977 + static_cast<TokenId>(end));
        all.resize(end);
        all.push_back(drawn.back());
      }
      const bool is_empty = step.batch.empty();
      if (!is_empty) open.push_back(std::move(step));
      if (!open.empty() && (is_empty || static_cast<int32_t>(open.size()) > steps_ahead)) {
        commit(open.front());
        if (HasFatalFailure()) return;
        open.pop_front();
      }
      scheduler.state_copies().check();
      const std::vector<const Sequence*> running(scheduler.running().begin(), scheduler.running().end());
      blocks.check(running);
    }
    EXPECT_GT(num_preempted, 20);
    EXPECT_GT(num_hits, 100);
    EXPECT_GT(num_cancelled, 20);
  }
}

}  // namespace
}  // namespace minfer
