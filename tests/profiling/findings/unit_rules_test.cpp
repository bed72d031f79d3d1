// Rules about the units that compute: f32 lanes, tensor cores, types of weights. On synthetic records, beside a control.
#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "profiling/findings/evidence.h"
#include "profiling/findings/findings_report.h"
#include "profiling/findings/rules.h"
#include "profiling/findings/step_model.h"
#include "tests/support/found_in.h"

namespace minfer {
namespace {

using test::device_header;
using test::FoundIn;
using test::kUnchanged;

TEST(Rules, F32Lanes) {
  ProfileHeader header = device_header();
  header.activation_dtype = DType::f32;
  FoundIn run(header);
  run.steps(kUnchanged);
  EXPECT_EQ(run.first(), "f32 lanes");
  EXPECT_NE(run.of("f32 lanes").advice.find("--dtype bf16"), std::string::npos);
  EXPECT_NEAR(run.of("f32 lanes").gain, 0.8 * (1.0 - 4.0 * 32 / 800.0) + 0.062, 0.01)
      << "no bytes are counted here; attention is one of them";
}

TEST(Rules, SlowerThanBf16AtThisBatch) {
  const auto with_weights = [](int64_t bytes) {
    ProfileHeader header = device_header();
    for (OpInfo& op : header.ops) {
      if (op.name != "qkv") continue;
      op.in_features = op.out_features = 4096;
      op.weight_bytes = bytes;
    }
    return header;
  };
  // In bf16: 33.6 MB at 4,000 GB/s take 8.4 us, or 9.3 us at 90 %, plus 4; here a call takes 25 us.
  FoundIn quantised(with_weights(4096 * 4096 * 9 / 16));
  quantised.steps(kUnchanged);
  EXPECT_EQ(quantised.first(), "slower than bf16");
  EXPECT_NEAR(quantised.of("slower than bf16").gain, 0.8 * (1.0 - 13.32 / 25.0), 0.01);
  FoundIn half(with_weights(4096 * 4096 * 2));
  half.steps(kUnchanged);
  EXPECT_EQ(half.of("slower than bf16").gain, 0.0);
  FoundIn fast(with_weights(4096 * 4096 * 9 / 16));
  fast.steps([](StepSummary& step) { step.ops[0].us = 32 * 12.0; });
  EXPECT_EQ(fast.of("slower than bf16").gain, 0.0);
}

/// Products in two layers whose arithmetic takes 18.75 us a call on bf16 tensor cores, and half of that on FP8's.
ProfileHeader header_with_fp8(bool first, bool second) {
  ProfileHeader header = device_header();
  header.ceilings.fp8_gflops = 2.0 * header.ceilings.gflops;
  header.ops.push_back(header.ops.front());
  for (OpInfo& op : header.ops) {
    op.in_features = op.out_features = 4096;
    op.weight_bytes = 4096 * 4096 * 33 / 32;
  }
  header.ops.front().fp8_products = first;
  header.ops.back().fp8_products = second;
  return header;
}
constexpr int64_t kFlopsOfACall = 15'000'000'000;

/// A CPU that prefills quantised weights at half of its f32 roofline: 400 us of 800, of which memory needs 40.
FoundIn prefill_on_cpu(double bf16_gflops, double int8_gflops, int64_t weight_bytes = 4096 * 4096 * 17 / 16,
                       OpKind kind = OpKind::linear, int32_t runs = 1) {
  ProfileHeader header = device_header();
  header.backend = "cpu";
  header.activation_dtype = DType::f32;
  header.ceilings = {.read_gbps = 40.0,
                     .gflops = 400.0,
                     .bf16_gflops = bf16_gflops,
                     .int8_gflops = int8_gflops,
                     .runs = runs};
  header.ops[0].kind = kind;
  header.ops[0].in_features = header.ops[0].out_features = 4096;
  header.ops[0].weight_bytes = weight_bytes;
  FoundIn run(header);
  run.steps([](StepSummary& step) {
    step.on_device = false;
    step.ops[0].launches.clear();
    step.ops[1].launches.clear();
    step.ops[0].flops = 160'000'000;
    step.ops[0].bytes = 1'600'000;
    step.ops[0].floor_us = 400.0;
    step.ops[0].bound = Bound::compute;
  });
  return run;
}

TEST(Rules, ArithmeticInF32WhileTheCoresHaveNarrowerUnits) {
  const FoundIn run = prefill_on_cpu(4'000.0, 8'000.0);
  const Finding finding = run.of("f32 arithmetic");
  EXPECT_EQ(finding.gain_from, 0.0);
  EXPECT_NEAR(finding.gain_to, 0.8 * 0.9, 1e-9) << "the arithmetic would take 20 us, the memory 40";
  EXPECT_NE(
      finding.evidence.find("take 80 % of the time in f32, while the cores have units for int8, 20.0 times"),
      std::string::npos)
      << finding.evidence;
  EXPECT_EQ(finding.advice.find("--"), std::string::npos) << "there is no option";
  // A finding without a remedy makes no run unhealthy, and ranks behind findings with one.
  EXPECT_FALSE(finding.has_option);
  EXPECT_EQ(finding.weight(), kLeastGain);
  EXPECT_NE(run.first(), "f32 arithmetic");
  std::string text;
  JsonText json(text);
  const Diagnosis diagnosis = diagnose(run.evidence);
  write_findings(json, diagnosis);
  simdjson::dom::parser parser;
  const Diagnosis read = diagnosis_of(JsonField(parser.parse(text).value(), "here"));
  const auto of_diagnosis = std::ranges::find(read.findings, "f32 arithmetic", &Finding::rule);
  ASSERT_NE(of_diagnosis, read.findings.end());
  EXPECT_FALSE(of_diagnosis->has_option);
  EXPECT_TRUE(std::ranges::all_of(
      read.findings, [](const Finding& each) { return each.has_option == (each.rule != "f32 arithmetic"); }));

  EXPECT_NEAR(prefill_on_cpu(4'000.0, 0.0).of("f32 arithmetic").gain_to, 0.8 * 0.9, 1e-9)
      << "bf16 does as well";
  EXPECT_NEAR(prefill_on_cpu(800.0, 8'000.0, 4096 * 4096 * 2).of("f32 arithmetic").gain_to, 0.8 * 0.5, 1e-9)
      << "int8 cannot hold bf16 weights";
  EXPECT_EQ(prefill_on_cpu(0.0, 0.0).of("f32 arithmetic").stake_us, 0.0) << "cores without";
  const int64_t of_two = 2 * 4096 * 4096 * 17 / 16;
  EXPECT_NE(prefill_on_cpu(800.0, 8'000.0, of_two, OpKind::gate_up_swiglu)
                .of("f32 arithmetic")
                .evidence.find("int8"),
            std::string::npos)
      << "two matrices of q8_0";
  EXPECT_EQ(prefill_on_cpu(4'000.0, 8'000.0, 4096 * 4096, OpKind::linear, 0).of("f32 arithmetic").stake_us,
            0.0)
      << "all measured while others had the cores";
  EXPECT_EQ(prefill_on_cpu(300.0, 300.0).of("f32 arithmetic").stake_us, 0.0) << "slower than f32";
  FoundIn decode;
  decode.steps(kUnchanged);
  EXPECT_EQ(decode.of("f32 arithmetic").stake_us, 0.0);
}

TEST(Rules, WhatIsBoundByArithmeticIsToldOfTheUnitThatItCouldUse) {
  const auto limit_of = [](FoundIn run) { return next_limit(run.evidence, {}).text; };
  FoundIn cpu = prefill_on_cpu(4'000.0, 8'000.0);
  cpu.steps([](StepSummary& step) {
    step.on_device = false;
    step.start_ns = 101'000'000 + step.step * 410'000;  // after the others
    step.wall_us = step.gpu_us = 410.0;
    step.ops.resize(1);
    step.ops[0].us = 400.0;
    step.ops[0].bytes = 100;
    step.ops[0].flops = 160'000'000;
    step.ops[0].floor_us = 400.0;
    step.ops[0].bound = Bound::compute;
    step.ops[0].launches.clear();
  });
  EXPECT_NE(
      limit_of(cpu).find("int8, 20.0 times as fast as f32 (measured), which no kernel of this build uses"),
      std::string::npos)
      << limit_of(cpu);
  const auto on_gpu = [&](const char* quantization, bool fp8_products) {
    ProfileHeader header = header_with_fp8(fp8_products, fp8_products);
    header.options.emplace_back("quantization", quantization);
    FoundIn run(header);
    run.steps([](StepSummary& step) {
      step.ops[0].flops = 32 * kFlopsOfACall;
      step.ops[0].floor_us = step.ops[0].us;
      step.ops[0].bound = Bound::compute;
    });
    return limit_of(run);
  };
  EXPECT_NE(on_gpu("none", false).find("--quantization fp8, in which the tensor cores do 2.0 times as much"),
            std::string::npos)
      << on_gpu("none", false);
  EXPECT_EQ(on_gpu("fp8", true).find("--quantization"), std::string::npos) << on_gpu("fp8", true);
}

TEST(Rules, MoreTokensAreHeldAgainstTheCeilingOfEachOp) {
  const auto token_cost = [](bool first, bool second) {
    FoundIn run(header_with_fp8(first, second));
    run.steps([](StepSummary& step) { step.ops[0].flops = 32 * kFlopsOfACall; });
    return StepModel(run.evidence, LineFit{}, StepPhase::decode).token_cost(32.0, 64.0);
  };
  // Products take 800 us of 1,000, attention takes 190 and grows. 64 tokens reach 64 / 69 of the roofline.
  EXPECT_NEAR(token_cost(false, false), 0.5 * (2.0 * 600.0 * 69.0 / 64.0 + 380.0) / 1'000.0, 1e-9);
  EXPECT_NEAR(token_cost(true, false), 0.5 * (2.0 * 450.0 * 69.0 / 64.0 + 380.0) / 1'000.0, 1e-9);
  EXPECT_NEAR(token_cost(true, true), 0.5 * (810.0 + 380.0) / 1'000.0, 1e-9) << "the weights' time";
}

TEST(Rules, Fp8ProductsAreSlowerThanBf16OnlyWhereBf16WouldBeSooner) {
  const auto gain_at = [](double call_us) {
    FoundIn run(header_with_fp8(true, true));
    run.steps([&](StepSummary& step) {
      step.ops[0].us = 32 * call_us;
      step.ops[0].flops = 32 * kFlopsOfACall;
      step.ops[0].floor_us = 32 * 9.375;
      step.ops[0].bound = Bound::compute;
    });
    return run.of("slower than bf16").gain;
  };
  EXPECT_EQ(gain_at(12.0), 0.0);
  EXPECT_EQ(gain_at(20.0), 0.0) << "bf16: 18.75 us at 90 %, and 4";
  EXPECT_EQ(gain_at(30.0), 0.0) << "in steps bf16 reaches less than alone";
  EXPECT_NEAR(gain_at(40.0), 1.28 * (1.0 - (18.75 / 0.9 + 4.0) / 40.0), 0.01);
}

}  // namespace
}  // namespace minfer
