#include <sstream>

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "profiling/json/json_reader.h"
#include "profiling/json/json_text.h"
#include "profiling/json/lines.h"
#include "tests/support/profiling/cuts.h"
#include "tests/support/profiling/sample_counters.h"
#include "tests/support/profiling/sample_profile.h"
#include "tests/support/refusal.h"

namespace minfer {
namespace {

constexpr double kRounding = 0.0005;  // of times, written with three decimals

std::string written(const ProfileHeader& header, const std::vector<StepSummary>& steps) {
  std::string text;
  append_header_line(text, header);
  for (const StepSummary& step : steps)
    append_line(text, step);
  return text;
}

ProfileFile read_text(const std::string& text) {
  std::istringstream stream(text);
  return read_profile(stream, "run.jsonl");
}

// The message of the FileError that reading `text` throws; empty: there is none.
std::string refusal(const std::string& text) {
  return test::refusal_of<FileError>([&] { read_text(text); });
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) throw std::invalid_argument("no " + std::string(from));
  return text.replace(at, from.size(), to);
}

TEST(JsonText, NumbersAndStrings) {
  std::string out;
  JsonText json(out);
  json.open('[').value(1.5).value(2.0).value(0.0004).value(-0.125).value(1e9).value(1.0 / 0.0);
  json.value(int64_t{-9'223'372'036'854'775'807 - 1}).value(uint64_t{18'446'744'073'709'551'615u}).close(']');
  EXPECT_EQ(out, "[1.5,2,0,-0.125,1000000000,0,-9223372036854775808,18446744073709551615]");
  out.clear();
  json.open('{')
      .field("a\"b", std::string_view("\\\n\x01 é\xff\xC0\x80\xED\xA0\x80 \xF0\x9F\x98\x80"))
      .close('}');
  EXPECT_EQ(out, "{\"a\\\"b\":\"\\\\\\u000a\\u0001 é\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD \U0001F600\"}");
}

TEST(ProfileFile, ReadsBackWhatWasWritten) {
  const ProfileHeader header = test::sample_header(ProfileDetail::layer);
  std::vector<StepSummary> steps = test::sample_steps(6, ProfileDetail::layer);
  steps[2].batch.constrained_rows = 3;
  steps[2].batch.forced_tokens = 5;
  steps[2].batch.prefill_budget = 7;
  steps[2].batch.predicted_ns = 1'234'567;
  steps[2].batch.drafts = 2;
  steps[2].batch.draft_tokens = 9;
  steps[2].batch.accepted_tokens = 4;
  steps[2].batch.accepted_at = {2, 1, 0, 1};
  steps[2].batch.disk = {
      .written = 1, .read = 2, .dropped = 3, .lost = 4, .hit_tokens = 32, .read_ns = 5'000};
  steps[2].host_us[static_cast<size_t>(HostSpan::mask)] = 1.5;
  steps[2].host_us[static_cast<size_t>(HostSpan::draft)] = 2.5;
  const ProfileFile file = read_text(written(header, steps));
  EXPECT_TRUE(file.note.empty());
  EXPECT_EQ(file.header.version, header.version);
  EXPECT_EQ(file.header.model, "sample \"two layers\"?");  // the newline could upset a terminal
  EXPECT_EQ(file.header.device, header.device);
  EXPECT_EQ(file.header.threads, header.threads);
  EXPECT_EQ(file.header.clock_ns, header.clock_ns);
  EXPECT_EQ(file.header.unix_ns, header.unix_ns);
  EXPECT_EQ(file.header.detail, header.detail);
  EXPECT_DOUBLE_EQ(file.header.ceilings.gflops, header.ceilings.gflops);
  ASSERT_EQ(file.header.options.size(), 2u);
  ASSERT_EQ(file.header.ops.size(), header.ops.size());
  for (size_t i = 0; i < header.ops.size(); ++i) {
    EXPECT_EQ(file.header.ops[i].name, header.ops[i].name);
    EXPECT_EQ(file.header.ops[i].layer, header.ops[i].layer);
    EXPECT_EQ(file.header.ops[i].kind, header.ops[i].kind);
    EXPECT_EQ(file.header.ops[i].scope, header.ops[i].scope);
    EXPECT_EQ(file.header.ops[i].weight_bytes, header.ops[i].weight_bytes);
  }
  ASSERT_EQ(file.steps.size(), steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    SCOPED_TRACE(i);
    const StepSummary& read = file.steps[i];
    EXPECT_EQ(read.step, steps[i].step);
    EXPECT_EQ(read.start_ns, steps[i].start_ns);
    EXPECT_EQ(read.phase(), steps[i].phase());
    EXPECT_NEAR(read.wall_us, steps[i].wall_us, kRounding);
    EXPECT_NEAR(read.gpu_us, steps[i].gpu_us, kRounding);
    EXPECT_NEAR(read.gpu_idle_us, steps[i].gpu_idle_us, kRounding);
    EXPECT_NEAR(read.prefill.us, steps[i].prefill.us, kRounding);
    EXPECT_NEAR(read.decode.us, steps[i].decode.us, kRounding);
    EXPECT_EQ(read.decode.tokens, steps[i].decode.tokens);
    EXPECT_NEAR(read.attributed, steps[i].attributed, 1e-5);
    EXPECT_EQ(read.batch.kv_blocks_total, 64);
    EXPECT_EQ(read.batch.constrained_rows, steps[i].batch.constrained_rows);
    EXPECT_EQ(read.batch.forced_tokens, steps[i].batch.forced_tokens);
    EXPECT_EQ(read.batch.shape.longest_context, steps[i].batch.shape.longest_context);
    EXPECT_EQ(read.batch.shape.decode_context, steps[i].batch.shape.decode_context);
    EXPECT_EQ(read.batch.prefill_budget, steps[i].batch.prefill_budget);
    EXPECT_EQ(read.batch.predicted_ns, steps[i].batch.predicted_ns);
    EXPECT_EQ(read.batch.drafts, steps[i].batch.drafts);
    EXPECT_EQ(read.batch.draft_tokens, steps[i].batch.draft_tokens);
    EXPECT_EQ(read.batch.accepted_tokens, steps[i].batch.accepted_tokens);
    EXPECT_EQ(read.batch.accepted_at, steps[i].batch.accepted_at);
    EXPECT_EQ(read.batch.disk, steps[i].batch.disk);
    EXPECT_EQ(read.requests, steps[i].requests);
    for (size_t span = 0; span < kHostSpans; ++span)
      EXPECT_NEAR(read.host_us[span], steps[i].host_us[span], kRounding);
    ASSERT_EQ(read.ops.size(), steps[i].ops.size());
    for (size_t op = 0; op < read.ops.size(); ++op) {
      EXPECT_EQ(read.ops[op].op, steps[i].ops[op].op);
      EXPECT_EQ(read.ops[op].phase, steps[i].ops[op].phase);
      EXPECT_EQ(read.ops[op].calls, steps[i].ops[op].calls);
      EXPECT_EQ(read.ops[op].bytes, steps[i].ops[op].bytes);
      EXPECT_EQ(read.ops[op].flops, steps[i].ops[op].flops);
      EXPECT_EQ(read.ops[op].bound, steps[i].ops[op].bound);
      EXPECT_NEAR(read.ops[op].us, steps[i].ops[op].us, kRounding);
      EXPECT_NEAR(read.ops[op].roofline(), steps[i].ops[op].roofline(), 1e-5);
    }
    ASSERT_EQ(read.layers.size(), steps[i].layers.size());
    for (size_t op = 0; op < read.layers.size(); ++op) {
      EXPECT_EQ(read.layers[op].layer, steps[i].layers[op].layer);
      EXPECT_EQ(read.layers[op].op, steps[i].layers[op].op);
      EXPECT_NEAR(read.layers[op].us, steps[i].layers[op].us, kRounding);
    }
  }
}

TEST(ProfileFile, ReadsBackWhichOpsAreOnFp8TensorCores) {
  ProfileHeader header = test::sample_header();
  EXPECT_DOUBLE_EQ(read_text(written(header, {})).header.ceilings.fp8_gflops, 0.0);
  EXPECT_EQ(written(header, {}).find("fp8"), std::string::npos) << "as before there were such products";
  EXPECT_EQ(ceilings_text(header), "200.0 GB/s read, 4000.0 GFLOP/s f32");
  header.activation_dtype = DType::bf16;
  header.ceilings.fp8_gflops = 7654.321;
  header.ops[1].fp8_products = true;
  const ProfileHeader read = read_text(written(header, {})).header;
  EXPECT_DOUBLE_EQ(read.ceilings.fp8_gflops, 7654.321);
  for (size_t i = 0; i < read.ops.size(); ++i)
    EXPECT_EQ(read.ops[i].fp8_products, i == 1) << i;
  EXPECT_EQ(ceilings_text(read), "200.0 GB/s read, 4000.0 GFLOP/s bf16, 7654.3 GFLOP/s fp8");
}

TEST(ProfileFile, ReadsBackCeilingsOfEachUnitAndHowTheyWereMeasured) {
  ProfileHeader header = test::sample_header();
  header.ceilings = {.read_gbps = 30.5,
                     .gflops = 350.0,
                     .vector_gflops = 50.0,
                     .bf16_gflops = 3'850.0,
                     .int8_gflops = 7'350.0,
                     .runs = 0,
                     .disturbed_runs = 2,
                     .measured_unix_s = 1'795'737'600};
  const Ceilings read = read_text(written(header, {})).header.ceilings;
  EXPECT_DOUBLE_EQ(read.vector_gflops, 50.0);
  EXPECT_DOUBLE_EQ(read.bf16_gflops, 3'850.0);
  EXPECT_DOUBLE_EQ(read.int8_gflops, 7'350.0);
  EXPECT_EQ(read.runs, 0);
  EXPECT_EQ(read.disturbed_runs, 2);
  EXPECT_EQ(read.measured_unix_s, 1'795'737'600);
}

TEST(ProfileFile, SaysWhatEachOpMultipliesInAndWhatItCould) {
  ProfileHeader header = test::sample_header();
  EXPECT_EQ(units_text(header), "arithmetic: all ops in f32");
  header.ceilings.runs = 1;
  header.ceilings.bf16_gflops = 44'000.0;
  header.ceilings.int8_gflops = 84'000.0;
  EXPECT_EQ(units_text(header),
            "arithmetic: all ops in f32; the device has faster units that no op uses (times as much): bf16 "
            "11.0, int8 21.0");
  header.ceilings = {.read_gbps = 4'000.0, .gflops = 800'000.0, .fp8_gflops = 1'600'000.0, .runs = 1};
  header.activation_dtype = DType::bf16;
  EXPECT_EQ(units_text(header),
            "arithmetic: attention_decode, attention_prefill, gate_up_swiglu, lm_head, qkv in bf16, the "
            "others in f32; the device has faster units that no op uses (times as much): fp8 2.0");
  ProfileHeader beside_others = header;
  beside_others.ceilings.runs = 0;
  EXPECT_EQ(units_text(beside_others).find("times"), std::string::npos)
      << "such ceilings say nothing of each other";
  header.ops[1].fp8_products = true;  // only of the first layer
  EXPECT_EQ(unit_names(header, "qkv"), (std::vector<std::string_view>{"fp8", "bf16"}));
  EXPECT_EQ(unit_names(header, "sample"), (std::vector<std::string_view>{"f32"}));
  EXPECT_EQ(unit_names(header, "no such op"), std::vector<std::string_view>{});
  EXPECT_EQ(units_text(header).find("arithmetic: qkv in fp8, attention_decode,"), 0u) << units_text(header);
}

TEST(ProfileFile, ReadsBackWhatADeviceLaunchedAndIdled) {
  ProfileHeader header = test::sample_header();
  header.activation_dtype = DType::bf16;
  header.memory = {.total_bytes = 1000,
                   .used_bytes = 900,
                   .used_before_bytes = 50,
                   .parts = {{"weights", 600, 620, true}, {"staging", 70, 80, false}}};
  StepSummariser summariser(header.ops, header.ceilings, ProfileDetail::op);
  const StepSummary step = summariser.summarise(test::sample_device_record(0, true));
  header.cache_bytes = 50 << 20;
  std::vector<KernelLaunch> launches = test::sample_launches();
  launches[1].reads_ahead_bytes = 17'301'504;
  std::string text;
  append_header_line(text, header);
  for (size_t i = 0; i < launches.size(); ++i)
    append_launch_line(text, static_cast<int32_t>(i), launches[i]);
  append_line(text, step);

  const ProfileFile file = read_text(text);
  EXPECT_EQ(file.header.activation_dtype, DType::bf16);
  EXPECT_EQ(file.header.cache_bytes, 50 << 20);
  EXPECT_EQ(file.header.memory.total_bytes, 1000);
  EXPECT_EQ(file.header.memory.unexplained_bytes(), 900 - 50 - 600);
  ASSERT_EQ(file.header.memory.parts.size(), 2u);
  EXPECT_EQ(file.header.memory.parts[0].most_bytes, 620);
  EXPECT_FALSE(file.header.memory.parts[1].on_device);
  ASSERT_EQ(file.launches.size(), 2u);
  EXPECT_EQ(file.launches[1].kernel, launches[1].kernel);
  EXPECT_EQ(file.launches[1].path, "cublasLt");
  EXPECT_EQ(file.launches[1].grid, launches[1].grid);
  EXPECT_EQ(file.launches[1].block, launches[1].block);
  EXPECT_EQ(file.launches[1].cluster, launches[1].cluster);
  EXPECT_EQ(file.launches[1].registers, 40);
  EXPECT_EQ(file.launches[1].dynamic_shared_bytes, 200 << 10);
  EXPECT_EQ(file.launches[1].blocks_per_sm, 6);
  EXPECT_EQ(file.launches[1].limiter, OccupancyLimiter::shared_memory);
  EXPECT_NEAR(file.launches[0].waves, launches[0].waves, 1e-5);
  EXPECT_EQ(file.launches[0].reads_ahead_bytes, 0);
  EXPECT_EQ(file.launches[1].reads_ahead_bytes, 17'301'504);
  ASSERT_EQ(file.steps.size(), 1u);
  const StepSummary& read = file.steps[0];
  EXPECT_EQ(read.attributed_by(), "end stamps");
  EXPECT_NEAR(read.idle_host_us, step.idle_host_us, kRounding);
  EXPECT_NEAR(read.idle_device_us, step.idle_device_us, kRounding);
  EXPECT_EQ(read.late_ops, step.late_ops);
  EXPECT_EQ(read.ops[0].launches, (std::vector<int32_t>{0, 1}));
  EXPECT_NEAR(read.ops[0].idle_us, step.ops[0].idle_us, kRounding);

  EXPECT_EQ(refusal(replaced(text, "\"launch\":1,", "\"launch\":2,")),
            "run.jsonl:3: launch: expected 1, found 2");
  EXPECT_EQ(refusal(replaced(text, "\"launches\":[0,1]", "\"launches\":[0,2]")),
            "run.jsonl:4: ops[0].launches[1]: expected a launch below 2, found 2");
  EXPECT_EQ(refusal(replaced(text, "\"grid\":[4,1,1]", "\"grid\":[4,1]")),
            "run.jsonl:2: grid: expected three sizes, found array");
}

TEST(ProfileFile, EveryCutIsReadableToTheLastWholeLine) {
  const std::string text = written(test::sample_header(), test::sample_steps(3));
  const size_t header_bytes = text.find('\n') + 1;
  for (const size_t bytes : test::cuts_of(text)) {
    const std::string cut = text.substr(0, bytes);
    if (bytes < header_bytes) {
      EXPECT_EQ(refusal(cut), "run.jsonl: ends before the end of its first line, the header of a profile");
      continue;
    }
    const ProfileFile file = read_text(cut);
    EXPECT_EQ(file.steps.size(), static_cast<size_t>(std::count(cut.begin(), cut.end(), '\n')) - 1) << bytes;
    EXPECT_EQ(file.note.empty(), cut.back() == '\n') << bytes;
  }
  const size_t last_line = text.rfind('\n', text.size() - 2) + 1;
  EXPECT_EQ(read_text(text.substr(0, last_line + 9)).note,
            "the file ends within line 4: its 9 bytes are left out");
}

TEST(ProfileFile, HostileLinesAreRefusedByPlaceAndField) {
  const std::string text = written(test::sample_header(), test::sample_steps(2));
  const std::string header = text.substr(0, text.find('\n') + 1);
  const auto expect = [&](std::string_view from, std::string_view to, const std::string& message) {
    EXPECT_EQ(refusal(replaced(text, from, to)), message);
  };
  expect("minfer.step/2", "minfer.step/1", "run.jsonl:1: schema minfer.step/1, expected minfer.step/2");
  expect("\"threads\":2", "\"threads\":-2",
         "run.jsonl:1: header.threads: expected an integer from 0 to 268435456, found -2");
  expect("\"kind\":\"linear\"", "\"kind\":\"conv\"",
         "run.jsonl:1: header.ops[1].kind: expected one of embed, rms_norm, linear, gate_up_swiglu, "
         "rope_kv_write, "
         "attention, moe_route, moe_gate_up_swiglu, moe_down, gather, sample, transfer, all_reduce, "
         "all_gather, broadcast, activate, latent_kv_write, head_linear, delta_conv, delta_rule, "
         "head_gate, short_conv, hidden_rows, mamba_scan, choose_keys, mix_streams, spread_columns, found "
         "string \"conv\"");
  expect("\"step\":0", "\"step\":\"\\u001b[2J\"",
         "run.jsonl:2: step: expected an integer from 0 to 1000000000000, found string \"?[2J\"");
  expect("\"wall_us\":63", "\"wall_us\":-1",
         "run.jsonl:2: wall_us: expected a number that is 0, or from 1e-9 to 1e15, found -1");
  expect("\"wall_us\":63", "\"wall_us\":1e999", "run.jsonl:2: is no valid JSON");
  expect("\"calls\":1", "\"calls\":99999999999",
         "run.jsonl:2: ops[0].calls: expected an integer from 0 to 268435456, found 99999999999");
  expect("\"bound\":\"memory\"", "\"limit\":\"memory\"", "run.jsonl:2: ops[0]: has no field \"bound\"");
  expect("\"phase\":\"decode\",\"batch\"", "\"phase\":\"mixed\",\"batch\"",
         "run.jsonl:2: phase: expected decode, found string \"mixed\"");
  expect("\"requests\":[\"request-0\"]", "\"requests\":{}",
         "run.jsonl:2: requests: expected an array, found object");
  EXPECT_EQ(refusal(header + "[]\n"), "run.jsonl:2: expected an object, found array");
  EXPECT_EQ(refusal(header + "\n"), "run.jsonl:2: is no valid JSON");
  EXPECT_EQ(refusal(header + header), "run.jsonl:2: has no field \"step\"");
  EXPECT_EQ(refusal(header + std::string(100'000, '[') + "\n"), "run.jsonl:2: is no valid JSON");
  EXPECT_EQ(refusal(header + std::string(9u << 20, ' ')), "run.jsonl:2: longer than 8388608 bytes");
  EXPECT_EQ(refusal(std::string("\0\xff\n", 3)), "run.jsonl:1: is no valid JSON");
}

TEST(ProfileFile, UnknownFieldsArePassedOver) {
  const std::string text = written(test::sample_header(), test::sample_steps(1));
  EXPECT_EQ(read_text(replaced(text, "\"wall_us\"", "\"graph\":\"decode_b4\",\"wall_us\"")).steps.size(), 1u);
}

TEST(ProfileFile, MissingFileAndFolder) {
  EXPECT_THROW(read_profile("/nonexistent/run.jsonl"), FileError);
  EXPECT_THROW(read_profile("/tmp"), FileError);
}

// Windows of counters are between the steps.
TEST(ProfileFile, ReadsCountersBesideSteps) {
  const std::vector<StepSummary> steps = test::sample_steps(2);
  std::string text = written(test::sample_header(), {});
  append_line(text, steps[0]);
  append_line(text, test::sample_counters());
  append_line(text, steps[1]);
  const ProfileFile file = read_text(text + "{\"schema");
  EXPECT_EQ(file.steps.size(), 2u);
  ASSERT_EQ(file.counters.size(), 1u);
  EXPECT_EQ(file.counters[0].samples, 10'240);
  EXPECT_NE(file.note.find("within line 5:"), std::string::npos) << file.note;
  EXPECT_NE(refusal(text + "{\"schema\":\"minfer.dreams/1\"}\n").find("run.jsonl:5: schema minfer.dreams/1"),
            std::string::npos);
}

}  // namespace
}  // namespace minfer
