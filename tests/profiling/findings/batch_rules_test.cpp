// Rules about differences between steps, each on synthetic records beside controls that lack them.
#include <gtest/gtest.h>

#include "profiling/findings/findings_report.h"
#include "profiling/report/report_tables.h"
#include "tests/support/found_in.h"

namespace minfer {
namespace {

using test::device_header;
using test::found_op;
using test::FoundIn;
using test::kUnchanged;

/// Makes a step with prompts beside decoding, eager as such steps are.
void add_prompts(StepSummary& step, int32_t tokens = 64) {
  step.batch.shape.prefill_tokens = tokens;
  step.batch.shape.prefill_sequences = 1;
  step.batch.graph_batch = 0;
}

/// Sets attention to these keys and microseconds a call; its roofline is 0.05 us for 1,000 keys. The step is as long as its ops.
void set_attention(StepSummary& step, double call_us, int64_t keys = 1'000) {
  OpSummary& attention = step.ops[1];
  attention.us = call_us * attention.calls;
  attention.bytes = 200 * keys * attention.calls;
  attention.floor_us = static_cast<double>(attention.bytes) / 4e6;
  step.gpu_us = step.ops[0].us + attention.us;
  step.wall_us = step.gpu_us + step.gpu_idle_us;
}

void expect_text(const Finding& finding, std::string_view text) {
  EXPECT_NE(finding.evidence.find(text), std::string::npos) << finding.evidence;
}

TEST(UnlikeItself, AnOpThatIsSlowBesidePrompts) {
  FoundIn run;
  run.steps([](StepSummary& step) {
    if (step.step % 5 == 0) add_prompts(step);
    set_attention(step, step.step % 5 == 0 ? 270.0 : 3.8);
  });
  const Finding finding = run.of("unlike itself");
  // The first step of each kind is a cold start.
  const double beyond_us = 19 * 32 * (270.0 - 3.8), wall_us = 100 * 810.0 + 20 * 32 * 270.0 + 80 * 32 * 3.8;
  EXPECT_NEAR(finding.gain, beyond_us / wall_us, 0.02);
  expect_text(finding, "attention_decode took 270.0 us a call beside prompts in the step (608 calls");
  expect_text(finding, "3.8 us elsewhere for the same work");
  EXPECT_EQ(run.first(), "unlike itself");
}

TEST(UnlikeItself, ButNotAnOpThatHasMoreToDoOrAsLongForLess) {
  FoundIn more;
  more.steps([](StepSummary& step) {
    if (step.step % 2 == 0) add_prompts(step);
    step.step % 2 == 0 ? set_attention(step, 9.0, 1'800) : set_attention(step, 5.0, 1'050);
  });
  EXPECT_EQ(more.of("unlike itself").gain, 0.0) << more.of("unlike itself").evidence;
  FoundIn less;
  less.steps([](StepSummary& step) {
    if (step.step % 2 == 0) add_prompts(step);
    set_attention(step, 5.0, step.step % 2 == 0 ? 1'050 : 1'800);
  });
  EXPECT_EQ(less.of("unlike itself").gain, 0.0) << less.of("unlike itself").evidence;
  FoundIn other_work;
  other_work.steps([](StepSummary& step) {
    if (step.step % 2 == 0) add_prompts(step);
    step.step % 2 == 0 ? set_attention(step, 200.0, 40'000) : set_attention(step, 5.0);
  });
  EXPECT_EQ(other_work.of("unlike itself").gain, 0.0) << "it has 40 times the keys";
}

TEST(UnlikeItself, NineTimesTheWorkInSeventyTimesTheTime) {
  const auto run_with = [](double call_us) {
    FoundIn run;
    run.steps([&](StepSummary& step) {
      if (step.step % 5 == 0) add_prompts(step);
      step.step % 5 == 0 ? set_attention(step, call_us, 9'000) : set_attention(step, 3.8);
    });
    return run.of("unlike itself");
  };
  expect_text(run_with(270.0), "attention_decode took 270.0 us a call beside prompts in the step (608 calls");
  expect_text(run_with(270.0), "34.2 us elsewhere for the same work");
  EXPECT_EQ(run_with(50.0).gain, 0.0) << "kernels reach more or less of the roof by size";
}

TEST(UnlikeItself, NorByChance) {
  FoundIn run;
  run.steps([](StepSummary& step) {
    if (step.step % 10 == 0) add_prompts(step);
    set_attention(step, step.step == 50 ? 2'000.0 : 5.0);
  });
  EXPECT_EQ(run.of("unlike itself").gain, 0.0) << "one step alone was disturbed";
  FoundIn seldom;
  seldom.steps([](StepSummary& step) {
    if (step.step % 20 == 1) add_prompts(step);
    set_attention(step, step.step % 20 == 1 ? 50.0 : 5.0);
  });
  EXPECT_EQ(seldom.of("unlike itself").gain, 0.0) << "five steps are not enough to tell";
}

TEST(UnlikeItself, NamesTheConditionThatTellsTheStepsApart) {
  const auto said_of = [](auto change, const HostSample& host = {}) {
    ProfileHeader header = device_header();
    header.backend = "cpu";
    FoundIn run(header);
    run.evidence.host(host);
    run.steps([&](StepSummary& step) {
      step.on_device = false;
      step.batch.graph_batch = 0;
      set_attention(step, change(step) ? 30.0 : 5.0);
    });
    return run.of("unlike itself").evidence;
  };
  const auto is_in = [](const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  };
  const std::string preempted = said_of([](StepSummary& step) {
    step.batch.preempted = step.step % 10 == 5;
    return step.step % 10 == 5 || step.step % 10 == 6;
  });
  EXPECT_TRUE(is_in(preempted, "with a preemption and after (640 calls")) << preempted;
  const std::string uneven = said_of([](StepSummary& step) {
    const bool is_uneven = step.step % 4 == 3;
    step.batch.shape.decode_context = 31'000 + (is_uneven ? 100'000 : 1'000);
    step.batch.shape.longest_context = is_uneven ? 100'000 : 1'000;
    return is_uneven;
  });
  EXPECT_TRUE(is_in(uneven, "beside one much longer context")) << uneven;
  const std::string later = said_of([](StepSummary& step) { return step.step >= 50; });
  EXPECT_TRUE(is_in(later, "late in the recording")) << later;
  HostSample taken;
  taken.begin_ns = 1'000'000, taken.end_ns = 500'000'000;
  taken.threads = 2;
  taken.any_waited_us = 100'000.0;
  EXPECT_EQ(said_of([](StepSummary& step) { return step.step >= 50; }, taken), "") << "others took the cores";
  const std::string alone = said_of([](StepSummary& step) {
    if (step.step % 3 != 1) return false;
    add_prompts(step);
    step.batch.shape.decode_sequences = step.batch.shape.decode_tokens = 0;
    return true;
  });
  EXPECT_TRUE(is_in(alone, "in steps of prompts alone")) << alone;
  const std::string paused = said_of([](StepSummary& step) {
    // Answers end with every fourth step; the next request comes 20 ms later.
    step.start_ns += step.step / 4 * 20'000'000;
    if (step.step % 4 != 0) return false;
    add_prompts(step);
    step.batch.shape.decode_sequences = step.batch.shape.decode_tokens = 0;
    return true;
  });
  EXPECT_TRUE(is_in(paused, "of prompts alone") || is_in(paused, "after a pause")) << paused;
  EXPECT_EQ(said_of([](StepSummary& step) { return step.step % 2 == 0; }), "") << "no condition tells why";
}

TEST(UnlikeItself, AHealthyMixOfPromptsAndDecodingHasNoFinding) {
  FoundIn run;
  run.steps([](StepSummary& step) {
    const int32_t prompt = step.step % 5 == 0 ? 512 : 0;
    if (prompt > 0) add_prompts(step, prompt);
    const double noise = 1.0 + 0.02 * static_cast<double>(step.step * 7919 % 11 - 5);
    OpSummary& qkv = step.ops[0];
    qkv.us = 32 * std::max(25.0, 0.5 * (32 + prompt)) * noise;
    qkv.flops = 32 * 4'000'000'000ll * (32 + prompt) / 32;
    qkv.bytes = 32 * 90'000'000ll;
    qkv.bound = prompt > 0 ? Bound::compute : Bound::memory;
    qkv.floor_us = 0.9 * qkv.us;
    set_attention(step, 6.0 * noise * static_cast<double>(1'000 + step.step) / 1'000.0, 1'000 + step.step);
    step.ops[1].floor_us = 0.85 * step.ops[1].us;
  });
  const Diagnosis diagnosis = diagnose(run.evidence);
  EXPECT_TRUE(diagnosis.is_healthy()) << findings_text(diagnosis, false, true);
}

TEST(UnevenBatch, OneLongContext) {
  const auto run_with = [](int32_t longest) {
    FoundIn run;
    run.steps([&](StepSummary& step) {
      step.batch.shape.decode_context = 31 * 1'000 + longest;
      step.batch.shape.longest_context = longest;
      set_attention(step, 50.0, 31'000 + longest);
    });
    return run;
  };
  const FoundIn uneven = run_with(93'000);
  const Finding finding = uneven.of("uneven batch");
  const double share = 1'600.0 / 2'410.0;
  EXPECT_NEAR(finding.gain, share * 92.0 / 124.0, 1e-3);
  EXPECT_NEAR(finding.gain_to, 1.25 * share * 92.0 / 93.0, 1e-3)
      << "if attention lasts until the longest is done";
  expect_text(finding, "one of 32.0 sequences had 93000 tokens of context, the others 1000");
  EXPECT_EQ(uneven.first(), "uneven batch");
  EXPECT_EQ(run_with(3'000).of("uneven batch").gain, 0.0);
}

/// 4 sequences that each bring 8 draft tokens to every step; `accepted` of all 32 are right. Ops take 700 us of a step's 1,000 us.
FoundIn drafted(int32_t accepted, int64_t context = 0, bool is_late = false) {
  FoundIn run;
  run.steps([&](StepSummary& step) {
    step.batch.shape.decode_sequences = 4;
    step.batch.shape.decode_context = step.step < 50 ? context : 8 * context;
    step.batch.shape.longest_context = static_cast<int32_t>(step.batch.shape.decode_context / 4);
    step.batch.shape.decode_tokens = 36;
    step.batch.drafts = 4;
    step.batch.draft_tokens = 32;
    step.batch.accepted_tokens = step.step < 50 ? accepted : 0;
    step.batch.graph_batch = 0;
    step.ops[0].us = 600.0;
    step.ops[1].us = 100.0;
    step.gpu_us = 700.0;
    step.gpu_idle_us = 300.0;
    step.host_us[static_cast<size_t>(HostSpan::draft)] = 200.0;
    if (is_late) step.idle_host_us = 90.0, step.late_ops = 30;
  });
  return run;
}

TEST(DraftsThatLose, IfEveryStepHasThemAModelOfTheStepTells) {
  const FoundIn never = drafted(0, 0, true);
  const Finding finding = never.of("drafts that lose");
  EXPECT_NEAR(finding.gain, 0.5 * (finding.gain_from + finding.gain_to), 1e-6);
  EXPECT_NEAR(finding.gain_from, 0.2, 1e-6) << "without the search alone";
  EXPECT_NEAR(finding.gain_to, 1.0 - 800.0 / 9.0 / 1'000.0, 1e-6) << "if checking is as long for each token";
  expect_text(finding, "1.00 tokens a sequence");
  expect_text(finding, "by a model, since too few steps had none");
  expect_text(finding, "0 of 3200 were accepted, and finding them took 20 % of these steps' decoding time");
  EXPECT_EQ(never.first(), "drafts that lose") << "late launches and an idle device follow from them";
  EXPECT_EQ(never.of("launch-bound").gain, 0.0);
  EXPECT_EQ(never.of("graph misses").gain, 0.0);
  EXPECT_EQ(never.of("host-bound").gain, 0.0);
}

TEST(DraftsThatLose, FromAContextOn) {
  const FoundIn run = drafted(12, 4'000);
  const Finding finding = run.of("drafts that lose");
  EXPECT_NEAR(finding.gain, 0.5 * (0.5 * (0.2 + 1.0 - 800.0 / 9.0 / 1'000.0)), 1e-6)
      << "of the steps that lose";
  expect_text(finding, "from 512 tokens of context on, 180 % won; from 4096 tokens of context on, 30 % lost");
  EXPECT_NE(finding.advice.find("off on a server for contexts of 4096 tokens"), std::string::npos)
      << finding.advice;
}

TEST(DraftsThatLose, AReportHasThemByContext) {
  const FoundIn run = drafted(12, 4'000);
  const Table table = drafts_table(run.evidence.drafts.uses());
  const std::vector<std::vector<std::string>> expected{
      {"decode", "512 on", "50", "1600", "37.5", "200", "800", "4.00", "180.0*"},
      {"decode", "4096 on", "50", "1600", "0.0", "200", "800", "1.00", "-30.0*"}};
  EXPECT_EQ(table.rows, expected);
}

TEST(DraftsThatLose, NotWhereTheyPay) {
  FoundIn run;
  run.steps([](StepSummary& step) {
    step.batch.shape.decode_sequences = 4;
    step.batch.shape.decode_tokens = 12;
    step.batch.drafts = 4;
    step.batch.draft_tokens = 8;
    step.batch.accepted_tokens = 4;
  });
  EXPECT_EQ(run.of("drafts that lose").gain, 0.0);
}

/// 200 requests, one every 10 ms, each of which waits `longer_us` longer than the one before.
FoundIn arriving(int64_t ns_between, int64_t longer_ns) {
  FoundIn run;
  run.steps([](StepSummary& step) {
    add_prompts(step);
    step.batch.waiting = 4;
    step.prefill.us = 640.0;
    step.gpu_idle_us = 0.0;
    step.batch.shape.decode_sequences = 64;
  });
  for (int64_t i = 0; i < 200; ++i) {
    EndedRequest request;
    request.arrival_ns = 1'000'000 + i * ns_between;
    request.prompt_tokens = 128;
    request.first_scheduled_ns = request.arrival_ns + 1'000'000 + i * longer_ns;
    request.first_token_ns = request.first_scheduled_ns + 5'000'000;
    request.end_ns = request.first_token_ns + 50'000'000;
    run.evidence.request(request);
  }
  return run;
}

TEST(Overload, ATimeToTheFirstTokenThatGrowsWithTheArrival) {
  const FoundIn run = arriving(10'000'000, 8'000'000);
  const Finding finding = run.of("overload");
  const double queue_ms = 1.0 + 99.5 * 8.0;
  EXPECT_NEAR(finding.gain, queue_ms / (queue_ms + 5.0), 1e-3);
  EXPECT_EQ(run.first(), "overload");
  expect_text(finding, "1.80 times as many as were served");
  EXPECT_NEAR(finding.gain_from, finding.gain, 1e-9);
  EXPECT_NEAR(finding.gain_to, 1.0 - 1.28 / (queue_ms + 5.0), 1e-3) << "128 tokens of 10 us, computed alone";
  EXPECT_NE(finding.advice.find("no more than 55.8 requests a second"), std::string::npos) << finding.advice;
  EXPECT_FALSE(diagnose(run.evidence).is_healthy());
  EXPECT_EQ(run.of("queueing").gain, 0.0) << "each time has one reason";
}

TEST(Overload, ButNotAWaitThatStaysOrABatchThatWaitsForItself) {
  EXPECT_EQ(arriving(10'000'000, 0).of("overload").gain, 0.0);
  EXPECT_EQ(arriving(10'000, 8'000'000).of("overload").gain, 0.0) << "all come at once";
}

TEST(ShrinkingBatch, BehindTheLastPrompt) {
  const auto run_with = [](int32_t least) {
    FoundIn run;
    run.steps([&](StepSummary& step) {
      if (step.step < 40) add_prompts(step);
      step.batch.shape.decode_sequences = step.batch.shape.decode_tokens =
          step.step < 60 ? 64 : std::max(least, static_cast<int32_t>(64 - 2 * (step.step - 60)));
    });
    return run;
  };
  const FoundIn drained = run_with(1);
  EXPECT_EQ(drained.first(), "batch that shrinks") << findings_text(diagnose(drained.evidence), false, true);
  expect_text(drained.of("batch that shrinks"), "from 64 sequences");
  EXPECT_EQ(drained.of("too little load").gain, 0.0);
  EXPECT_EQ(run_with(64).of("batch that shrinks").gain, 0.0);
}

}  // namespace
}  // namespace minfer
