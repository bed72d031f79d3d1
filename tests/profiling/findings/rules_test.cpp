// Each rule on synthetic records, beside a control that lacks the fault.
#include "profiling/findings/rules.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "profiling/findings/evidence.h"
#include "profiling/findings/findings_report.h"
#include "tests/support/found_in.h"
#include "tests/support/paths.h"

namespace minfer {
namespace {

using test::device_header;
using test::FoundIn;
using test::kUnchanged;
using test::launch_of_waves;

TEST(Rules, AnEvenRunIsHealthyAndNamesItsLimit) {
  FoundIn run;
  run.steps(kUnchanged);
  const Diagnosis diagnosis = diagnose(run.evidence);
  EXPECT_TRUE(diagnosis.is_healthy()) << findings_text(diagnosis, false);
  EXPECT_NE(diagnosis.limit.text.find("memory bandwidth"), std::string::npos) << diagnosis.limit.text;
  EXPECT_EQ(diagnosis.limit.text.find("Not bound"), std::string::npos) << diagnosis.limit.text;
  EXPECT_TRUE(findings_text(diagnosis, false).starts_with("Healthy")) << findings_text(diagnosis, false);
}

TEST(Rules, ARunFarFromTheHardwareIsNotBoundByIt) {
  FoundIn run;
  run.steps([](StepSummary& step) {
    for (OpSummary& op : step.ops) {
      op.floor_us = 0.1 * op.us;
      op.bytes = static_cast<int64_t>(op.floor_us * 4e6);  // at 4,000 GB/s
      op.launches = {1};
    }
  });
  const Diagnosis diagnosis = diagnose(run.evidence);
  EXPECT_TRUE(diagnosis.limit.text.starts_with("Not bound by the hardware (memory bandwidth 10 %"))
      << diagnosis.limit.text;
  EXPECT_EQ(findings_text(diagnosis, false).find("Healthy"), std::string::npos);
}

TEST(Rules, SmallFindingsAreShownOnRequest) {
  FoundIn run;
  run.steps([](StepSummary& step) { step.idle_host_us = 30.0, step.late_ops = 4; });
  const Diagnosis diagnosis = diagnose(run.evidence);
  ASSERT_FALSE(diagnosis.findings.empty());
  const std::string rule(diagnosis.findings.front().rule);
  EXPECT_EQ(findings_text(diagnosis, false).find(rule), std::string::npos);
  EXPECT_NE(findings_text(diagnosis, false).find("--all"), std::string::npos);
  EXPECT_NE(findings_text(diagnosis, false, true).find(rule), std::string::npos);
}

TEST(Rules, KeysAndValuesThatCouldBeNarrower) {
  const auto run_with = [](const char* type, bool on_device, int64_t bytes = 16 << 20) {
    ProfileHeader header = device_header();
    header.options.emplace_back("kv_cache_dtype", type);
    FoundIn run(header);
    run.steps([&](StepSummary& step) {
      step.on_device = on_device;
      step.ops[1].floor_us = 0.22 * step.ops[1].us;
      step.ops[1].bytes = bytes * step.ops[1].calls;
    });
    return run.of("wide KV cache");
  };
  EXPECT_NEAR(run_with("f32", false).gain_to, 0.52 * 0.19, 1e-6);
  EXPECT_EQ(run_with("f32", false, 2 << 20).gain, 0.0) << "caches hold it";
  EXPECT_NE(run_with("f32", false).advice.find("--kv-cache-dtype f16"), std::string::npos)
      << "fp8 is for GPUs";
  EXPECT_EQ(run_with("f16", false).gain, 0.0);
  EXPECT_EQ(run_with("bf16", true).gain, 0.0) << "a GPU gains where it waits for memory";
}

TEST(Rules, NamesAreDifferentAndStandInTheGuide) {
  std::ifstream file(source_path("profiling/README.md"));
  const std::string guide{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::set<std::string_view> names;
  for (const std::span<const Rule> rules : all_rules()) {
    for (const Rule& rule : rules) {
      EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
      EXPECT_NE(guide.find(fmt::format("\n| {} | ", rule.name)), std::string::npos)
          << rule.name << " is not in the table of profiling/README.md";
    }
  }
  EXPECT_EQ(names.size(), 51u);
}

TEST(Rules, HostBound) {
  FoundIn run;
  run.steps([](StepSummary& step) {
    step.gpu_us = 600.0;
    step.gpu_idle_us = 400.0;
    step.host_us[static_cast<size_t>(HostSpan::build)] = 380.0;
  });
  EXPECT_EQ(run.first(), "host-bound");
  EXPECT_NEAR(run.of("host-bound").gain, 0.4, 1e-6);
  EXPECT_NE(run.of("host-bound").evidence.find("build"), std::string::npos);
}

TEST(Rules, DraftsThatLoseButNotThoseThatGain) {
  const auto run_with = [](double drafted_us) {
    FoundIn run;
    int64_t number = 0;
    run.steps([&](StepSummary& step) {
      step.batch.shape.decode_sequences = 4;
      if (number++ % 2 == 0) return;
      step.batch.shape.decode_tokens = 12;
      step.batch.drafts = 4;
      step.batch.draft_tokens = 8;
      step.batch.accepted_tokens = 4;
      step.wall_us = drafted_us;
    });
    return run;
  };
  FoundIn loses = run_with(4000.0);  // 8 tokens, which take 2000 us in steps of 4, and 1000 us
  EXPECT_NEAR(loses.of("drafts that lose").gain, 2000.0 / 5000.0, 0.05);
  EXPECT_NE(loses.of("drafts that lose").evidence.find("2.00 tokens a sequence, each in 500 us"),
            std::string::npos)
      << loses.of("drafts that lose").evidence;
  FoundIn gains = run_with(1900.0);
  EXPECT_EQ(gains.of("drafts that lose").gain, 0.0);
}

TEST(Rules, SlowGrammarsButNotWhatGrammarsCost) {
  const auto run_with = [](double mask_us) {
    FoundIn run;
    run.steps([mask_us](StepSummary& step) {
      step.gpu_us = 600.0;
      step.gpu_idle_us = 400.0;
      step.host_us[static_cast<size_t>(HostSpan::build)] = 50.0;
      step.host_us[static_cast<size_t>(HostSpan::mask)] = mask_us;
      step.batch.constrained_rows = 4;
    });
    return run;
  };
  FoundIn slow = run_with(300.0);
  EXPECT_EQ(slow.first(), "slow grammars");
  EXPECT_NEAR(slow.of("slow grammars").gain, 0.3, 1e-6);
  EXPECT_NE(slow.of("slow grammars").evidence.find("75 us for each"), std::string::npos)
      << slow.of("slow grammars").evidence;
  EXPECT_NEAR(slow.of("host-bound").gain, 0.1, 1e-6) << "each time has one reason";
  FoundIn fair = run_with(60.0);
  EXPECT_EQ(fair.of("slow grammars").gain, 0.0);
}

TEST(Rules, LaunchBoundAndGraphMisses) {
  const auto eager = [](StepSummary& step) {
    step.batch.graph_batch = 0;
    step.gpu_us = 700.0;
    step.gpu_idle_us = step.idle_host_us = 300.0;
    step.late_ops = 60;
  };
  ProfileHeader header = device_header();
  header.options.back().second = "false";
  FoundIn off(header);
  off.steps(eager);
  EXPECT_EQ(off.of("launch-bound").gain, 0.0) << "one finding for what --cuda-graphs mends";
  EXPECT_NEAR(off.of("graph misses").gain, 0.3, 1e-6);
  EXPECT_EQ(off.of("graph misses").advice, "set --cuda-graphs");
  FoundIn on;
  on.steps(eager);
  EXPECT_NEAR(on.of("launch-bound").gain, 0.3, 1e-6);
  EXPECT_LT(off.of("host-bound").gain, 0.01) << "counted once";
  FoundIn many_launches(header);
  many_launches.steps([](StepSummary& step) {
    step.batch.graph_batch = 0;
    step.ops[0].calls = step.ops[1].calls = 100;
  });
  EXPECT_NEAR(many_launches.of("graph misses").gain, 200 * 0.4 / 1'000.0, 1e-6) << "the host keeps up";
  FoundIn looked_at(header);
  looked_at.steps([](StepSummary& step) {
    step.batch.graph_batch = 0;
    if (step.step % 32 != 0) return;
    step.idle_source = IdleSource::end_stamps;
    step.gpu_us = 600.0;
    step.gpu_idle_us = 400.0;
  });
  EXPECT_NEAR(looked_at.of("graph misses").gain, 0.4, 1e-6)
      << "other steps do not show what idles between ops";
  FoundIn some;
  some.steps([&](StepSummary& step) {
    if (step.step % 2 == 0) eager(step);
    if (step.step % 2 == 1) step.wall_us = 600.0;
  });
  EXPECT_NEAR(some.of("graph misses").gain, 0.5 * 0.4, 0.01) << "steps begin a millisecond apart";
}

TEST(Rules, BubblesButNotTimeWithoutWork) {
  const auto late = [](StepSummary& step) { step.start_ns += step.step * 500'000; };
  FoundIn run;
  run.steps(late);
  EXPECT_EQ(run.first(), "bubbles");
  EXPECT_NEAR(run.of("bubbles").gain, 1.0 / 3.0, 0.01);
  FoundIn idle;
  idle.steps([&](StepSummary& step) {
    late(step);
    std::swap(step.batch.shape.prefill_sequences, step.batch.shape.decode_sequences);
    std::swap(step.batch.shape.prefill_tokens, step.batch.shape.decode_tokens);
  });
  EXPECT_EQ(idle.of("bubbles").gain, 0.0);
  EXPECT_NEAR(idle.evidence.steps.idle_us, 99 * 500.0, 1.0);
}

TEST(Rules, SynchronousCopy) {
  FoundIn run;
  run.steps(kUnchanged);
  for (int64_t i = 0; i < 10; ++i) {
    run.evidence.traced_step(StepKernels{.step = i, .kernels = 2, .busy_us = 800.0, .idle_us = 200.0});
    KernelLine copy;
    copy.kind = ActivityKind::memcpy;
    copy.own_us = 50.0;
    run.evidence.kernel(copy);
    KernelLine next;
    next.gap_us = 100.0;
    next.gap_cause = GapCause::host;
    run.evidence.kernel(next);
  }
  EXPECT_EQ(run.first(), "synchronous copy");
  const Finding finding = run.of("synchronous copy");
  EXPECT_NEAR(finding.gain_from, 0.05, 1e-6);
  EXPECT_NEAR(finding.gain, 0.1, 1e-6);
  EXPECT_NEAR(finding.gain_to, 0.15, 1e-6);
}

TEST(Rules, Padding) {
  FoundIn run;
  run.steps([](StepSummary& step) {
    const int32_t sequences = 16 + static_cast<int32_t>(step.step % 17);
    step.batch.shape.decode_tokens = step.batch.shape.decode_sequences = sequences;
    step.batch.padded_tokens = 32 - sequences;
    step.wall_us = 500.0 + 10.0 * sequences;
  });
  EXPECT_NEAR(run.of("padding").gain, 8.0 * 10.0 / 1'000.0, 0.01) << "steps begin a millisecond apart";
}

TEST(Rules, ColdStart) {
  FoundIn run;
  run.steps([](StepSummary& step) {
    if (step.step > 0) return;
    step.wall_us = 50'000.0;
    step.gpu_idle_us = 49'010.0;
  });
  EXPECT_NEAR(run.of("cold start").gain, 49.0 / 149.0, 0.01);
}

TEST(Rules, SlowerWithTimeButNotASmallerBatch) {
  FoundIn run;
  run.steps([](StepSummary& step) {
    if (step.step < 50) return;
    for (OpSummary& op : step.ops)
      op.us *= 1.25;
    step.gpu_us *= 1.25;
    step.wall_us *= 1.25;
  });
  EXPECT_NEAR(run.of("slower with time").gain, 0.2, 0.01);
  FoundIn even;
  even.steps(kUnchanged);
  EXPECT_EQ(even.of("slower with time").gain, 0.0);
  FoundIn drained;
  drained.steps([](StepSummary& step) {
    if (step.step < 50) return;
    step.batch.shape.decode_sequences = 8;
    step.gpu_us *= 1.25;
  });
  EXPECT_EQ(drained.of("slower with time").gain, 0.0);
}

TEST(Rules, AnotherProcess) {
  const auto disturbed = [](StepSummary& step) {
    if (step.step / 5 % 2 == 0) return;
    step.gpu_us *= 2.0;
    step.wall_us *= 2.0;
  };
  FoundIn alone;
  alone.steps(disturbed);
  EXPECT_EQ(alone.of("another process").gain, 0.0) << "nobody else has memory";
  ProfileHeader header = device_header();
  header.memory = {
      .total_bytes = 100ll << 30, .used_bytes = 50ll << 30, .used_before_bytes = 20ll << 30, .parts = {}};
  FoundIn run(header);
  run.steps(disturbed);
  EXPECT_NEAR(run.of("another process").gain, 1.0 / 3.0, 0.02);
  FoundIn kept_waiting(header);
  kept_waiting.steps([](StepSummary& step) {
    step.gpu_us = 500.0;
    step.gpu_idle_us = 500.0;
    step.host_us[static_cast<size_t>(HostSpan::wait)] = 980.0;
  });
  EXPECT_EQ(kept_waiting.first(), "another process");
  EXPECT_NEAR(kept_waiting.of("another process").gain, 0.48, 0.01);
  EXPECT_NEAR(kept_waiting.of("host-bound").gain, 0.02, 0.001);
}

TEST(Rules, QueueingWhileRequestsKeepComing) {
  const auto run_with = [](int64_t ns_between_arrivals) {
    FoundIn run;
    run.steps([](StepSummary& step) {
      step.batch.waiting = 4;
      step.batch.shape.prefill_tokens = 2048;
      step.batch.shape.prefill_sequences = 1;
    });
    for (int64_t i = 0; i < 20; ++i) {
      EndedRequest request;
      request.arrival_ns = i * ns_between_arrivals;
      request.first_scheduled_ns = request.arrival_ns + 60'000'000;
      request.first_token_ns = request.first_scheduled_ns + 20'000'000;
      request.end_ns = request.first_token_ns + 20'000'000;
      run.evidence.request(request);
    }
    return run.of("queueing").gain;
  };
  EXPECT_NEAR(run_with(10'000'000), 0.6, 1e-6);
  EXPECT_EQ(run_with(1'000), 0.0) << "a batch that comes at once waits for itself";
}

/// The cause for the only op of interest, which is at half of the roofline, with this kernel.
std::string cause_at_half(size_t op, const KernelLaunch& launch) {
  FoundIn run;
  run.evidence.launch(launch);
  run.steps([&](StepSummary& step) {
    step.ops[op].launches = {2};
    step.ops[op].floor_us = 0.5 * step.ops[op].us;
  });
  return run.first();
}

TEST(Rules, KernelsThatDoNotFillTheDevice) {
  EXPECT_EQ(cause_at_half(0, launch_of_waves(0.4)), "small grid");
  EXPECT_EQ(cause_at_half(1, launch_of_waves(0.4)), "attention split");
  EXPECT_EQ(cause_at_half(0, launch_of_waves(1.1)), "tail wave");
  EXPECT_EQ(cause_at_half(0, launch_of_waves(2.0, 0.12)), "occupancy");
  EXPECT_EQ(cause_at_half(0, launch_of_waves(2.0, 0.5)), "latency-bound");
}

TEST(Rules, MoreWarpsGiveLittleHoweverFarTheRoofIs) {
  FoundIn run;
  run.evidence.launch(launch_of_waves(2.0, 0.12));
  run.steps([&](StepSummary& step) {
    step.ops[0].launches = {2};
    step.ops[0].floor_us = 0.2 * step.ops[0].us;
  });
  const Finding finding = run.of("occupancy");
  EXPECT_EQ(finding.gain_from, 0.0);
  EXPECT_NEAR(finding.gain_to, 0.04 * 0.8, 1e-3);
  EXPECT_TRUE(finding.weight() < kHealthyGain);
}

TEST(Rules, BetweenSixtyAndEightyPerCentOfARoof) {
  for (const Bound bound : {Bound::memory, Bound::compute}) {
    FoundIn run;
    run.steps([&](StepSummary& step) {
      step.ops[0].floor_us = 0.65 * step.ops[0].us;
      step.ops[0].bound = bound;
    });
    EXPECT_EQ(run.first(), bound == Bound::memory ? "memory-bound" : "compute-bound");
  }
}

TEST(Rules, BytesReadAgain) {
  FoundIn run;
  run.steps(kUnchanged);
  CounterWindow window;
  CounterOp op{.op = "qkv", .calls = 32, .us = 800.0, .measured = {}, .counted_read_bytes = 1e9};
  op.measured[Counter::dram_read_bytes] = 1.5e9;
  window.work.push_back({.phase = StepPhase::decode, .steps = 10, .ops = {op}});
  run.evidence.counters(window);
  EXPECT_NEAR(run.of("re-reads").gain, 0.8 / 3.0, 0.01);
}

TEST(Rules, RealProfilesOfTwoGpus) {
  Evidence reader;
  read_profile(source_path("tests/benchmarks/results/two-gpus-b64.jsonl"), reader);
  ASSERT_EQ(reader.ranks().ranks.size(), 2u);
  for (const Finding& finding : diagnose(reader).findings) {
    EXPECT_NE(finding.rule, "slow rank") << finding.evidence;
    EXPECT_NE(finding.rule, "exposed communication") << finding.evidence;
  }
}

TEST(Rules, RealProfilesOfAGpu) {
  const auto diagnosis_of_run = [](const std::string& name) {
    Evidence reader;
    read_profile(source_path("tests/benchmarks/results/cuda-2026-11-22-steps-" + name + ".jsonl"), reader);
    return diagnose(reader);
  };
  const Diagnosis one = diagnosis_of_run("b1");
  ASSERT_FALSE(one.findings.empty());
  EXPECT_EQ(one.findings.front().rule, "too little load");
  EXPECT_TRUE(diagnosis_of_run("b64").is_healthy());
}

TEST(Rules, NothingIsSaidOfNoSteps) {
  const Diagnosis diagnosis = diagnose(FoundIn().evidence);
  EXPECT_TRUE(diagnosis.findings.empty());
  EXPECT_NE(findings_text(diagnosis, false).find("holds no step"), std::string::npos);
}

TEST(FindingsReport, FitsEightyColumns) {
  FoundIn run;
  run.steps([](StepSummary& step) {
    step.gpu_us = 600.0;
    step.gpu_idle_us = 400.0;
  });
  std::istringstream lines(findings_text(diagnose(run.evidence), false));
  for (std::string line; std::getline(lines, line);)
    EXPECT_LE(line.size(), 80u) << line;
}

}  // namespace
}  // namespace minfer
