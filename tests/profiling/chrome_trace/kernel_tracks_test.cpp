#include "profiling/chrome_trace/kernel_tracks.h"

#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/profiling/parsed_trace.h"

namespace minfer {
namespace {

using test::ParsedTrace;

/// Times in ns; launched alone, `delay_us` before the begin.
KernelLine drawn_kernel(const std::string& kernel, int64_t start_ns, int64_t end_ns, int32_t stream = 7,
                        double delay_us = 2.0) {
  KernelLine line;
  line.step = 3;
  line.op = kernel + "_op";
  line.phase = StepPhase::decode;
  line.kernel = kernel;
  line.stream = stream;
  line.start_ns = start_ns;
  line.us = static_cast<double>(end_ns - start_ns) / 1e3;
  line.own_us = line.us;
  line.launch_delay_us = delay_us;
  return line;
}

ParsedTrace drawn(const std::vector<std::vector<KernelLine>>& steps,
                  const std::vector<KernelLaunch>& launches = {}) {
  std::string text;
  TraceEvents events([&](std::string_view piece) { text += piece; }, 0);
  events.open_file("{\"schemaVersion\":1");
  Tracks tracks(events, "GPU");
  KernelTracks kernels(events, tracks);
  for (const std::vector<KernelLine>& step : steps)
    kernels.add(step, launches);
  events.close_file();
  ParsedTrace trace(text);
  trace.expect_sound();
  return trace;
}

/// "name begin-end"
std::vector<std::string> spans_on(const ParsedTrace& trace, const std::string& track) {
  std::vector<std::string> spans;
  for (const ParsedTrace::Slice& slice : trace.on(track))
    spans.push_back(fmt::format("{} {}-{}", slice.name, slice.begin_ns, slice.end_ns));
  return spans;
}

TEST(KernelTracksTest, ALaunchEndsBeforeTheHostComesBackToSample) {
  std::vector<KernelLine> step{drawn_kernel("a", 10'000, 20'000), drawn_kernel("b", 20'000, 30'000)};
  step.push_back(drawn_kernel("draw", 40'000, 50'000));
  step.back().op = "sample";
  EXPECT_EQ(last_launch_ns(step), 38'000) << "at once";
  step.back().start_ns = 400'000;
  EXPECT_EQ(last_launch_ns(step), 18'000) << "later";
  step.back().op = "lm_head";
  EXPECT_EQ(last_launch_ns(step), 398'000) << "no other op is launched by itself";
}

TEST(KernelTracksTest, EachStreamHasATrackWithExactTimes) {
  KernelLine copy = drawn_kernel("", 31'001, 32'003, 9);
  copy.kind = ActivityKind::memcpy;
  copy.bytes = 4096;
  copy.op.clear();
  copy.phase.reset();
  KernelLine fill = drawn_kernel("", 33'000, 33'500, 9);
  fill.kind = ActivityKind::memset;
  const ParsedTrace trace =
      drawn({{drawn_kernel("a", 10'001, 20'002), drawn_kernel("b", 20'002, 30'003), copy, fill}});
  EXPECT_EQ(spans_on(trace, "GPU/stream 7"), (std::vector<std::string>{"a 10001-20002", "b 20002-30003"}));
  EXPECT_EQ(spans_on(trace, "GPU/stream 9"),
            (std::vector<std::string>{"Memcpy 31001-32003", "Memset 33000-33500"}));
  const auto on_nine = trace.on("GPU/stream 9");
  EXPECT_EQ(on_nine[0].category, "gpu_memcpy");
  EXPECT_EQ(on_nine[1].category, "gpu_memset");
  EXPECT_EQ(on_nine[0].args["bytes"], 4096);
  EXPECT_FALSE(on_nine[0].args.contains("op"));
  EXPECT_EQ(trace.on("GPU/stream 7")[0].category, "kernel");
}

TEST(KernelTracksTest, AKernelThatBeginsEarlyStandsForItsOwnTime) {
  // b and c begin while a runs; c ends before b does.
  const ParsedTrace trace = drawn({{drawn_kernel("a", 10'000, 20'000), drawn_kernel("b", 12'000, 25'000),
                                    drawn_kernel("c", 15'000, 24'000), drawn_kernel("d", 25'000, 26'000)}});
  EXPECT_EQ(spans_on(trace, "GPU/stream 7"),
            (std::vector<std::string>{"a 10000-20000", "b 20000-25000", "c 25000-25000", "d 25000-26000"}));
  EXPECT_EQ(spans_on(trace, "GPU/stream 7, begun early"), (std::vector<std::string>{"b 12000-20000"}));
  EXPECT_EQ(spans_on(trace, "GPU/stream 7, begun early, 2"), (std::vector<std::string>{"c 15000-24000"}));
  const auto slices = trace.on("GPU/stream 7");
  EXPECT_EQ(slices[1].args["whole us"], 13.0);
  EXPECT_EQ(slices[1].args["stream"], 7);
  EXPECT_FALSE(trace.on("GPU/stream 7, begun early")[0].args.contains("stream"))
      << "tools would count its time twice";
}

TEST(KernelTracksTest, KernelsOfTwoStreamsMayRunAtATime) {
  const ParsedTrace trace =
      drawn({{drawn_kernel("a", 10'000, 20'000, 1), drawn_kernel("b", 12'000, 15'000, 2)}});
  EXPECT_EQ(spans_on(trace, "GPU/stream 2"), (std::vector<std::string>{"b 12000-15000"}));
  EXPECT_TRUE(trace.on("GPU/stream 2, begun early").empty());
}

TEST(KernelTracksTest, AnArrowLeadsFromTheCallToItsKernel) {
  const ParsedTrace trace = drawn({{drawn_kernel("a", 10'000, 20'000), drawn_kernel("b", 20'000, 30'000)}});
  EXPECT_EQ(spans_on(trace, "host/CUDA calls"),
            (std::vector<std::string>{"cudaLaunchKernel 7000-8000", "cudaLaunchKernel 17000-18000"}));
  ASSERT_EQ(trace.flows.size(), 2u);
  const ParsedTrace::Flow& flow = trace.flows.at(2);
  EXPECT_EQ(flow.from, "host/CUDA calls");
  EXPECT_EQ(flow.to, "GPU/stream 7");
  EXPECT_EQ(flow.from_ns, 17'000);
  EXPECT_EQ(flow.to_ns, 20'000);
  EXPECT_EQ(trace.on("host/CUDA calls")[1].args["correlation"], 2);
  EXPECT_EQ(trace.on("GPU/stream 7")[1].args["correlation"], 2);
}

TEST(KernelTracksTest, AGraphIsOneCall) {
  std::vector<KernelLine> kernels{drawn_kernel("early", 9'000, 10'000, 7, 0.0),  // before the call ended
                                  drawn_kernel("a", 10'000, 20'000, 7, 0.5),
                                  drawn_kernel("b", 20'000, 30'000, 7, 10.5)};
  std::swap(kernels[0], kernels[1]);
  for (KernelLine& kernel : kernels)
    kernel.in_graph = true;
  std::ranges::sort(kernels, {}, &KernelLine::start_ns);
  kernels[0].launch_delay_us = -1.0;  // unknown
  const ParsedTrace trace = drawn({kernels});
  EXPECT_EQ(spans_on(trace, "host/CUDA calls"), (std::vector<std::string>{"cudaGraphLaunch 8500-9500"}));
  EXPECT_EQ(trace.flows.size(), 1u) << "to its first kernel";
  const auto slices = trace.on("GPU/stream 7");
  EXPECT_EQ(slices[1].args["correlation"], slices[2].args["correlation"]);
  EXPECT_NE(slices[0].args["correlation"], slices[1].args["correlation"]);
}

TEST(KernelTracksTest, AKernelOfAGraphThatBeganBeforeTheCallEndedIsOfThatCall) {
  std::vector<KernelLine> kernels{drawn_kernel("a", 10'000, 20'000, 7, 0.5),
                                  drawn_kernel("b", 20'000, 30'000, 7, 0.0)};
  for (KernelLine& kernel : kernels)
    kernel.in_graph = true;
  EXPECT_EQ(drawn({kernels}).on("host/CUDA calls").size(), 1u);
}

TEST(KernelTracksTest, ALaunchIsDescribed) {
  KernelLaunch launch{.kernel = "a", .path = "tile", .grid = {132, 2, 1}, .block = {256, 1, 1}};
  launch.registers = 64;
  launch.static_shared_bytes = 1024;
  launch.dynamic_shared_bytes = 2048;
  launch.occupancy = 0.5;
  KernelLine kernel = drawn_kernel("a", 10'000, 20'000);
  kernel.launch = 0;
  KernelLine unknown = drawn_kernel("b", 20'000, 30'000);
  unknown.launch = 5;  // not in the table
  const auto slices = drawn({{kernel, unknown}}, {launch}).on("GPU/stream 7");
  EXPECT_EQ(slices[0].args["grid"], (ParsedTrace::Json{132, 2, 1}));
  EXPECT_EQ(slices[0].args["registers per thread"], 64);
  EXPECT_EQ(slices[0].args["shared memory"], 3072);
  EXPECT_EQ(slices[0].args["theoretical occupancy %"], 50.0);
  EXPECT_EQ(slices[0].args["path"], "tile");
  EXPECT_FALSE(slices[1].args.contains("grid"));
}

// For any overlap: the tracks are sound, and a stream's slices add up to the time in which one of its kernels ran.
TEST(KernelTracksTest, AnyOverlapKeepsTheTracksSoundAndTheBusyTime) {
  std::mt19937_64 random(5);
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  for (int round = 0; round < 50; ++round) {
    std::vector<std::vector<KernelLine>> steps(3);
    std::map<int32_t, int64_t> busy_ns, busy_until_ns;
    int64_t begin_ns = 1'000'000;
    for (std::vector<KernelLine>& step : steps) {
      for (int i = 0; i < 40; ++i) {
        begin_ns += below(3'000);
        const auto stream = static_cast<int32_t>(below(3));
        const int64_t end_ns = begin_ns + below(9'000);
        step.push_back(drawn_kernel("k", begin_ns, end_ns, stream, static_cast<double>(below(20'000)) / 1e3));
        step.back().in_graph = below(2) == 0;
        int64_t& until_ns = busy_until_ns[stream];
        busy_ns[stream] += std::max<int64_t>(0, end_ns - std::max(begin_ns, until_ns));
        until_ns = std::max(until_ns, end_ns);
      }
    }
    const ParsedTrace trace = drawn(steps);
    for (const auto& [stream, ns] : busy_ns) {
      int64_t drawn_ns = 0;
      for (const ParsedTrace::Slice& slice : trace.on(fmt::format("GPU/stream {}", stream)))
        drawn_ns += slice.end_ns - slice.begin_ns;
      EXPECT_EQ(drawn_ns, ns);
    }
  }
}

}  // namespace
}  // namespace minfer
