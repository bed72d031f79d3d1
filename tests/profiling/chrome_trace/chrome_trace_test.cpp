#include "profiling/chrome_trace/chrome_trace.h"

#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "kernels/base/error.h"
#include "tests/support/paths.h"
#include "tests/support/profiling/parsed_trace.h"
#include "tests/support/profiling/sample_profile.h"
#include "tests/support/profiling/traced_profile.h"
#include "tests/support/profiling/whole_profile.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

using test::ParsedTrace;
using test::sampled_profile;
using test::steps_of;
using test::trace_text;
using test::traced;

constexpr int64_t kNoLastStep = std::numeric_limits<int64_t>::max();

/// Steps of a file that has a line of every kind, read back.
class WholeProfileTrace : public testing::Test {
 protected:
  WholeProfileTrace() {
    ProfileWriter writer(path_, test::whole_profile_header(launches_));
    test::write_whole_profile(writer, 3);
    writer.close();
  }
  std::string text() const {
    std::ostringstream text;
    text << std::ifstream(path_, std::ios::binary).rdbuf();
    return text.str();
  }

  test::TemporaryDirectory directory_;
  std::filesystem::path path_ = directory_.path() / "run.jsonl";
  LaunchTable launches_;
};

TEST_F(WholeProfileTrace, HasATrackForEachPartOfTheMachine) {
  const ProfileFile file = read_profile(path_);
  const ParsedTrace trace = traced(file);
  const std::set<std::string> tracks = trace.tracks();
  EXPECT_TRUE(tracks.contains("host/engine thread"));
  size_t streams = 0, kernels = 0;
  for (const std::string& track : tracks) {
    const bool is_stream = track.find("/stream ") != std::string::npos;
    streams += is_stream;
    if (is_stream && track.find("early") == std::string::npos) kernels += trace.on(track).size();
  }
  EXPECT_GE(streams, 1u);
  EXPECT_EQ(kernels, file.kernels.size());
  EXPECT_EQ(steps_of(trace),
            (std::vector<int64_t>{file.steps[0].step, file.steps[1].step, file.steps[2].step}));
}

TEST_F(WholeProfileTrace, AFileCutAnywhereIsDrawnUpToThere) {
  const std::string whole = text();
  const size_t header = whole.find('\n');
  int64_t drawn = 0, empty = 0;
  for (size_t length = header + 1; length < whole.size(); length += 97) {
    std::istringstream stream(whole.substr(0, length));
    const ProfileFile file = read_profile(stream, "run.jsonl");
    if (file.steps.empty()) {
      EXPECT_THROW(trace_text(file), Error);
      ++empty;
      continue;
    }
    EXPECT_EQ(steps_of(traced(file)).size(), file.steps.size());
    ++drawn;
  }
  EXPECT_GT(drawn, 0);
  EXPECT_GT(empty, 0);
}

TEST_F(WholeProfileTrace, TheCheckerOfTracesAgrees) {
  for (const char* trace_name : {"trace.json", "trace.json.gz"}) {
    const std::filesystem::path path = directory_.path() / trace_name;
    TraceOutput output(path);
    write_chrome_trace(read_profile(path_), {}, [&](std::string_view piece) { output.write(piece); });
    output.close();
    const std::string command = "command -v python3 >/dev/null || exit 77; python3 '" +
                                source_path("tests/checks/check_trace.py") + "' '" + path.string() + "' >'" +
                                (directory_.path() / "out").string() + "' 2>&1";
    const int status = WEXITSTATUS(std::system(command.c_str()));
    if (status == 77) GTEST_SKIP() << "no python3";
    std::ostringstream said;
    said << std::ifstream(directory_.path() / "out").rdbuf();
    EXPECT_EQ(status, 0) << said.str();
  }
}

// The control: the checker finds errors.
TEST(TraceChecker, FindsWhatIsWrong) {
  const test::TemporaryDirectory directory;
  const std::string names = R"({"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"p"}},)"
                            R"({"ph":"M","name":"thread_name","pid":1,"tid":1,"args":{"name":"t"}})";
  const auto slice = [](double ts, double dur, int tid = 1) {
    return ParsedTrace::Json{{"ph", "X"},  {"name", "s"}, {"cat", "c"}, {"pid", 1},
                             {"tid", tid}, {"ts", ts},    {"dur", dur}, {"args", ParsedTrace::Json::object()}}
        .dump();
  };
  const auto flow = [](const char* kind, double ts) {
    return ParsedTrace::Json{{"ph", kind}, {"name", "f"}, {"cat", "f"}, {"pid", 1},
                             {"tid", 1},   {"ts", ts},    {"id", 1},    {"bp", "e"}}
        .dump();
  };
  const auto status_of = [&](const std::string& events) {
    const std::filesystem::path path = directory.path() / "trace.json";
    std::ofstream(path) << "{\"traceEvents\":[" << events << "]}";
    return WEXITSTATUS(
        std::system(("command -v python3 >/dev/null || exit 77; python3 '" +
                     source_path("tests/checks/check_trace.py") + "' '" + path.string() + "' >/dev/null 2>&1")
                        .c_str()));
  };
  const int sound = status_of(names + "," + slice(1, 5) + "," + slice(2, 3) + "," + slice(6, 0));
  if (sound == 77) GTEST_SKIP() << "no python3";
  EXPECT_EQ(sound, 0);
  EXPECT_EQ(status_of(names + "," + slice(1, 5) + "," + flow("s", 2) + "," + flow("f", 3)), 0);
  for (const std::string& wrong :
       {slice(1, 5) + "," + slice(4, 3), slice(4, 1) + "," + slice(1, 1), slice(1, -1), slice(-1, 1),
        slice(1, 1, 2), slice(1, 5) + "," + flow("s", 2),
        slice(1, 5) + "," + flow("s", 3) + "," + flow("f", 2),
        slice(1, 5) + "," + flow("s", 2) + "," + flow("f", 9), std::string("{\"ph\":\"X\"}"),
        std::string("{\"ph\":\"B\",\"pid\":1,\"tid\":1,\"name\":\"b\",\"ts\":1}"), std::string("1"),
        std::string("}")})
    EXPECT_EQ(status_of(names + "," + wrong), 1) << wrong;
}

TEST(ChromeTraceTest, OpsNestInLayersPhasesAndSteps) {
  const ParsedTrace trace = traced(sampled_profile());
  const auto slices = trace.on("CPU " + sampled_profile().header.device + "/steps, phases, layers and ops");
  ASSERT_GE(slices.size(), 5u);
  EXPECT_EQ(slices[0].name, "step 0");
  EXPECT_EQ(slices[0].args["times of ops"], "stamps by layer, laid end to end");
  EXPECT_EQ(slices[1].category, "phase");
  bool has_layer = false;
  for (const ParsedTrace::Slice& slice : slices)
    has_layer = has_layer || slice.name == "layer 1";
  EXPECT_TRUE(has_layer);
}

TEST(ChromeTraceTest, RequestsHaveTracks) {
  ProfileFile file = sampled_profile();
  file.steps.resize(2);
  file.steps[0].batch.shape.prefill_sequences = 1;
  file.steps[0].batch.shape.decode_sequences = 1;
  file.steps[0].requests = {"old", "new"};  // decoding sequences come first
  file.steps[1].batch.shape.prefill_sequences = 0;
  file.steps[1].batch.shape.decode_sequences = 2;
  file.steps[1].requests = {"old", "new"};
  const auto slices = traced(file).on("requests/new");
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[0].name, "prefill");
  EXPECT_EQ(slices[1].name, "decode");
  EXPECT_EQ(traced(file).on("requests/old")[0].name, "decode");
}

TEST(ChromeTraceTest, CountersFollowTheSteps) {
  ProfileFile file = sampled_profile();
  CounterWindow window;
  CounterStep& measured = window.steps.emplace_back();
  measured.step = 2;
  measured.us = 10.0;
  measured.covered = 0.5;
  measured.measured[Counter::dram_read_bytes] = 20e6;
  file.counters.push_back(window);
  HostSample waits{.begin_ns = file.steps.front().start_ns, .end_ns = file.steps.front().start_ns + 10'000};
  waits.any_waited_us = 4.0;
  HostSample before = waits;  // in any step
  before.end_ns = waits.begin_ns;
  before.begin_ns = waits.begin_ns - 10'000;
  file.host = {before, waits};
  DeviceSample hot{.begin_ns = waits.begin_ns, .end_ns = waits.end_ns, .device = 1};
  hot.sm_mhz = 1'410;
  hot.temperature_c = 88;
  file.devices = {{.begin_ns = before.begin_ns, .end_ns = before.end_ns}, hot};
  const ParsedTrace trace = traced(file);
  ASSERT_EQ(trace.counter("% of time without a core").size(), 1u);
  EXPECT_EQ(trace.counter("% of time without a core")[0]["some thread waits"], 40.0);
  ASSERT_EQ(trace.counter("GPU 1 MHz").size(), 1u);
  EXPECT_EQ(trace.counter("GPU 1 MHz")[0]["SM"], 1'410);
  EXPECT_EQ(trace.counter("GPU 1 W and C")[0]["temperature"], 88);
  EXPECT_EQ(trace.counter("GPU 0 MHz").size(), 0u) << "before any step";
  EXPECT_EQ(trace.counter("batch tokens").size(), 9u);
  EXPECT_EQ(trace.counter("KV blocks used")[1]["blocks"], file.steps[1].batch.kv_blocks_used);
  EXPECT_EQ(trace.counter("requests").size(), 9u);
  EXPECT_EQ(trace.counter("GB/s counted").size(), 9u);
  ASSERT_EQ(trace.counter("GB/s measured").size(), 1u);
  EXPECT_EQ(trace.counter("GB/s measured")[0], (ParsedTrace::Json{{"read", 4000.0}}));
}

TEST(ChromeTraceTest, FiltersChooseSteps) {
  const ProfileFile file = sampled_profile();
  EXPECT_EQ(steps_of(traced(file, {.steps = {{2, 4}}})), (std::vector<int64_t>{2, 3, 4}));
  const auto mixed = steps_of(traced(file, {.phase = StepPhase::mixed}));
  EXPECT_EQ(mixed.size(), 3u);
  EXPECT_EQ(steps_of(traced(file, {.phase = StepPhase::mixed, .steps = {{mixed[1], kNoLastStep}}})),
            (std::vector<int64_t>{mixed[1], mixed[2]}));
  ProfileFile served = file;
  for (StepSummary& step : served.steps)
    step.requests = {"all"};
  served.steps[4].requests = {"all", "one"};
  const ParsedTrace trace = traced(served, {.request = "one"});
  EXPECT_EQ(steps_of(trace), (std::vector<int64_t>{4}));
  EXPECT_EQ(trace.on("requests/one").size(), 1u);
  EXPECT_TRUE(trace.on("requests/all").empty());
  EXPECT_FALSE(trace.on("host/engine thread").empty());
  for (const ParsedTrace::Slice& slice : trace.on("host/engine thread"))
    EXPECT_EQ(slice.args["step"], 4);
}

// A step has the same contents whether others are drawn or not, so it can be looked up in another trace.
TEST(ChromeTraceTest, AFilterMovesNothing) {
  const ParsedTrace whole = traced(sampled_profile());
  const ParsedTrace part = traced(sampled_profile(), {.steps = {{4, 4}}});
  std::vector<std::pair<int64_t, std::string>> in_whole, in_part;
  for (const ParsedTrace::Slice& slice : whole.slices) {
    if (slice.args.value("step", int64_t{-1}) == 4) in_whole.emplace_back(slice.begin_ns, slice.name);
  }
  for (const ParsedTrace::Slice& slice : part.slices) {
    if (slice.args.contains("step")) in_part.emplace_back(slice.begin_ns, slice.name);
  }
  EXPECT_EQ(in_part, in_whole);
}

TEST(ChromeTraceTest, NothingToDrawIsAnErrorBeforeAnythingIsWritten) {
  bool wrote = false;
  const auto write = [&](std::string_view) { wrote = true; };
  ProfileFile empty;
  EXPECT_THROW(write_chrome_trace(empty, {}, write), Error);
  try {
    write_chrome_trace(sampled_profile(), {.steps = {{9, kNoLastStep}}}, write);
    FAIL() << "there is no step 9";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("holds 9 steps from 0 to 8"), std::string::npos) << error.what();
  }
  EXPECT_FALSE(wrote);
}

TEST(ChromeTraceTest, HostileNamesStayNames) {
  const std::string hostile = "\"}],\\ \n\x01\x7f \xff\xfe \xed\xa0\x80 </script> \xe2\x80\xa8";
  ProfileFile file = sampled_profile();
  file.header.model = file.header.device = file.header.version = file.note = hostile;
  file.steps.resize(1);
  file.steps[0].requests = {hostile, hostile + "2", ""};
  for (LayerOp& op : file.steps[0].layers)
    op.op = hostile;
  KernelLine kernel;
  kernel.step = file.steps[0].step;
  kernel.kernel = kernel.op = hostile;
  kernel.phase = StepPhase::decode;
  kernel.launch = 0;
  kernel.stream = std::numeric_limits<int32_t>::max();
  kernel.start_ns = file.steps[0].start_ns;
  kernel.us = 1.0;
  kernel.launch_delay_us = 1e-3;
  file.kernels = {kernel};
  KernelLaunch launch;
  launch.path = launch.kernel = hostile;
  file.launches = {launch};
  const ParsedTrace trace = traced(file);
  EXPECT_EQ(trace.json()["minfer"]["model"].get<std::string>().substr(0, 8), "\"}],\\ \n\x01");
  EXPECT_EQ(trace.tracks().size(), 7u);
}

TEST(ChromeTraceTest, KernelsOfStepsThatAreNotThereAreCounted) {
  ProfileFile file = sampled_profile();
  KernelLine kernel;
  kernel.step = 77;
  kernel.kernel = "k";
  file.kernels = {kernel, kernel};
  const TraceCounts counts = write_chrome_trace(file, {}, [](std::string_view) {});
  EXPECT_EQ(counts.steps, 9);
  EXPECT_EQ(counts.kernels, 0);
  EXPECT_EQ(counts.without_step, 2);
}

TEST(ChromeTraceTest, SaysWhatTheProfileLacks) {
  ProfileFile file = sampled_profile();
  file.steps.back().dropped = 3;
  file.ranges.resize(2);
  file.ranges[0].dropped = 4;
  file.ranges[1].unmatched = 5;
  const ParsedTrace trace = traced(file);
  EXPECT_EQ(trace.json()["minfer"]["dropped steps"], 3);
  EXPECT_EQ(trace.json()["minfer"]["dropped kernels"], 4);
  EXPECT_EQ(trace.json()["minfer"]["kernels of no launch"], 5);
}

TEST(ChromeTraceTest, TimesHaveNanosecondsAndMapToDates) {
  ProfileFile file = sampled_profile();
  file.header.clock_ns = 1'000;
  file.header.unix_ns = 1'700'000'000'000'000'000;
  for (StepSummary& step : file.steps)
    step.start_ns += 8'640'000'000'000'001;  // a hundred days
  const ParsedTrace trace = traced(file);
  for (const ParsedTrace::Slice& slice : trace.slices) {
    if (slice.category != "step") continue;
    const int64_t unix_ns = trace.json()["baseTimeNanoseconds"].get<int64_t>() + slice.begin_ns;
    const auto step = static_cast<size_t>(slice.args["step"].get<int64_t>());
    EXPECT_EQ(unix_ns - file.header.unix_ns, file.steps[step].start_ns - file.header.clock_ns);
  }
}

// Times that a file may hold but that no machine has measured.
TEST(ChromeTraceTest, AbsurdTimesKeepTheTracksSound) {
  for (const double us : {0.0, 1e12, 1e300}) {
    for (const int64_t start_ns : {int64_t{10'000'000'000}, std::numeric_limits<int64_t>::max()}) {
      ProfileFile file = sampled_profile();
      file.header.unix_ns = std::numeric_limits<int64_t>::max();
      file.ranges.resize(2);
      file.ranges[0].dropped = file.ranges[1].dropped = std::numeric_limits<int64_t>::max();
      for (StepSummary& step : file.steps) {
        step.start_ns = start_ns;
        step.wall_us = step.gpu_us = us;
        step.on_device = step.step % 3 != 0;
        step.host_us.fill(us);
        for (LayerOp& op : step.layers)
          op.us = us;
        KernelLine kernel;
        kernel.step = step.step;
        kernel.kernel = kernel.op = "k";
        kernel.phase = StepPhase::decode;
        kernel.start_ns = start_ns;
        kernel.us = kernel.own_us = us;
        kernel.launch_delay_us = us;
        if (step.step > 4) file.kernels.insert(file.kernels.end(), {kernel, kernel});
      }
      ParsedTrace trace(trace_text(file));
      if (us == 0.0) trace.expect_sound();
      EXPECT_EQ(steps_of(trace).size(), 9u);
    }
  }
}

// Tools of PyTorch's profiler find iterations by this name, and the rank by this text.
TEST(ChromeTraceTest, HasWhatHolisticTraceAnalysisLooksFor) {
  const std::string text = trace_text(sampled_profile());
  EXPECT_NE(text.find("\"rank\": 0"), std::string::npos);
  EXPECT_NE(text.find("\"ProfilerStep#3\""), std::string::npos);
}

TEST(ChromeTraceTest, MemoryDoesNotGrowWithTheTrace) {
  ProfileFile file = sampled_profile();
  const std::vector<StepSummary> some = file.steps;
  for (int64_t round = 1; round < 200; ++round) {
    for (StepSummary step : some) {
      step.step += 9 * round;
      step.start_ns += round * 10'000'000'000;
      file.steps.push_back(step);
    }
  }
  size_t largest = 0, pieces = 0;
  write_chrome_trace(file, {}, [&](std::string_view piece) {
    largest = std::max(largest, piece.size());
    ++pieces;
  });
  EXPECT_LT(largest, 100'000u);
  EXPECT_GT(pieces, 5u);
}

}  // namespace
}  // namespace minfer
