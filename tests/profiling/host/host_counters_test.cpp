// Linux's counters of a process: files in their real form, and a thread that has to share its core.
#include "profiling/host/host_counters.h"

#include <atomic>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sched.h>
#include <unistd.h>

#include "profiling/host/sampler.h"
#include "profiling/json/json_reader.h"
#include "profiling/json/lines.h"
#include "profiling/json/profile_writer.h"
#include "tests/support/json_schema.h"
#include "tests/support/paths.h"
#include "tests/support/profiling/sample_profile.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

/// A file system with planted files.
class PlantedHost {
 public:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = folder_.path() / path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  HostCounters read() { return HostReader(folder_.path()).read(7); }

 private:
  test::TemporaryDirectory folder_;
};

TEST(HostCounters, ThreadsThatComputeAreTheEnginesAndItsPools) {
  PlantedHost host;
  for (const auto& [id, name] : {std::pair{"7", "minfer"}, {"8", "minfer-pool"}, {"9", "minfer-other"}}) {
    host.write(fmt::format("proc/self/task/{}/comm", id), fmt::format("{}\n", name));
    host.write(fmt::format("proc/self/task/{}/schedstat", id), "5000000 3000000 12\n");
  }
  host.write("proc/self/task/7/status",
             "Name:\tminfer\nvoluntary_ctxt_switches:\t99\nnonvoluntary_ctxt_switches:\t4\n");
  const HostCounters counters = host.read();
  ASSERT_EQ(counters.threads.size(), 2u);
  EXPECT_EQ(counters.threads.at(7).ran_ns, 5'000'000);
  EXPECT_EQ(counters.threads.at(8).waited_ns, 3'000'000);
  EXPECT_EQ(counters.switches, 4);
}

TEST(HostCounters, TheMachineAndTheProcess) {
  PlantedHost host;
  host.write("proc/stat",
             "cpu  1 2 3 4 5 6 7 50 9 9\ncpu0 1 2 3 4 5 6 7 8 9 9\nprocs_running 5\nprocs_blocked 1\n");
  host.write("proc/pressure/io",
             "some avg10=1.00 avg60=0.00 avg300=0.00 total=1500\nfull avg10=0.00 total=900\n");
  host.write("proc/pressure/memory", "some avg10=1.00 avg60=0.00 avg300=0.00 total=2500\n");
  host.write("proc/self/status", "Name:\tminfer\nRssFile:\t   3072 kB\nVmSwap:\t    2048 kB\n");
  host.write("proc/self/stat", "7 (a name) with ) R 1 7 7 0 -1 4194304 100 0 31 0 5 6");
  const HostCounters counters = host.read();
  EXPECT_EQ(counters.stolen_ns, int64_t{50} * 1'000'000'000 / ::sysconf(_SC_CLK_TCK));
  EXPECT_EQ(counters.runnable, 5);
  EXPECT_EQ(counters.disk_stalled_ns, 1'500'000);
  EXPECT_EQ(counters.memory_stalled_ns, 2'500'000);
  EXPECT_EQ(counters.swapped_bytes, 2 << 20);
  EXPECT_EQ(counters.file_bytes, 3 << 20);
  EXPECT_EQ(counters.disk_faults, 31);
}

TEST(HostCounters, TheClockOfTheEnginesCore) {
  PlantedHost host;
  host.write("proc/self/task/7/stat",
             "7 (a name) with ) R 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 "
             "31 32 33 "
             "34 35 36 37 38 5 40 41");
  host.write("sys/devices/system/cpu/cpu5/cpufreq/scaling_cur_freq", "2100000\n");
  EXPECT_EQ(host.read().core_mhz, 2100.0);
  EXPECT_EQ(host.read().most_core_mhz, 0.0) << "not known";
  host.write("sys/devices/system/cpu/cpu5/cpufreq/cpuinfo_max_freq", "3700000\n");
  EXPECT_EQ(host.read().most_core_mhz, 3700.0);
}

TEST(HostCounters, QuotasOfBothVersionsAndOfOuterGroups) {
  PlantedHost second;
  second.write("proc/self/cgroup", "0::/outer/inner\n");
  second.write("sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
  second.write("sys/fs/cgroup/outer/cpu.max", "150000 100000\n");
  second.write("sys/fs/cgroup/outer/cpu.stat", "usage_usec 9\nnr_throttled 3\nthrottled_usec 70\n");
  EXPECT_EQ(second.read().quota_cores, 1.5);
  EXPECT_EQ(second.read().throttled_ns, 70'000);

  PlantedHost first;
  first.write("proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/inner\n");
  first.write("sys/fs/cgroup/cpu/inner/cpu.cfs_quota_us", "50000\n");
  first.write("sys/fs/cgroup/cpu/inner/cpu.cfs_period_us", "100000\n");
  first.write("sys/fs/cgroup/cpu/inner/cpu.stat", "nr_throttled 3\nthrottled_time 800\n");
  first.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(first.read().quota_cores, 0.5);
  EXPECT_EQ(first.read().throttled_ns, 800);
}

TEST(HostCounters, ASystemThatSaysNothing) {
  PlantedHost host;
  const HostCounters counters = host.read();
  EXPECT_TRUE(counters.threads.empty());
  EXPECT_EQ(counters.quota_cores, 0.0);
  EXPECT_EQ(between(counters, counters, 2).threads, 0);
}

TEST(HostCounters, WhatLiesBetweenTwoReadings) {
  const HostCounters before{.at_ns = 0, .threads = {{1, {0, 0}}, {2, {0, 0}}, {3, {0, 0}}}, .stolen_ns = 0};
  const HostCounters after{
      .at_ns = 100'000'000,
      .threads = {{1, {40'000'000, 50'000'000}}, {2, {80'000'000, 20'000'000}}, {4, {1, 1}}},
      .engine_thread = 2,
      .stolen_ns = 30'000'000};
  const HostSample sample = between(before, after, 2);
  EXPECT_EQ(sample.threads, 2) << "those that were there both times";
  EXPECT_EQ(sample.ran_us, 120'000.0);
  EXPECT_EQ(sample.waited_us, 70'000.0);
  EXPECT_EQ(sample.engine_waited_us, 20'000.0);
  EXPECT_NEAR(sample.any_waited_us, 60'000.0, 1e-6) << "1 - 0.5 x 0.8 of the time";
  EXPECT_EQ(sample.stolen_us, 15'000.0);
}

/// Threads that keep the first core of this process busy.
class BusyCore {
 public:
  BusyCore() {
    ::sched_getaffinity(0, sizeof all_, &all_);
    CPU_ZERO(&one_);
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one_) == 0; ++core) {
      if (CPU_ISSET(core, &all_)) CPU_SET(core, &one_);
    }
    ::sched_setaffinity(0, sizeof one_, &one_);  // threads that are started inherit it
    for (int i = 0; i < 3; ++i) {
      threads_.emplace_back([](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
        }
      });
    }
  }
  ~BusyCore() { ::sched_setaffinity(0, sizeof all_, &all_); }

 private:
  cpu_set_t all_, one_;
  std::vector<std::jthread> threads_;
};

TEST(HostCounters, AThreadWaitsForItsCore) {
  HostReader reader;
  const auto here = static_cast<int32_t>(::gettid());
  if (reader.read(here).threads.empty()) GTEST_SKIP() << "the system does not say what threads did";
  const BusyCore busy;
  const HostCounters before = reader.read(here);
  constexpr int64_t kEnoughNs = 60'000'000;  // on the core: the scheduler switches several times
  HostCounters after = before;
  while (after.threads.at(here).ran_ns - before.threads.at(here).ran_ns < kEnoughNs)
    after = reader.read(here);
  const HostSample sample = between(before, after, 1);
  EXPECT_GT(sample.engine_waited_us, 0.5 * sample.ran_us) << "three others had their turns";
  EXPECT_GT(sample.switches, 0);
}

HostSample sample_of_everything() {
  HostSample sample{.begin_ns = 1'000, .end_ns = 2'000, .threads = 2, .ran_us = 1.5, .waited_us = 2.5};
  sample.engine_waited_us = 2.0;
  sample.any_waited_us = 2.25;
  sample.switches = 3;
  sample.runnable = 8;
  sample.stolen_us = 0.5;
  sample.throttled_us = 0.75;
  sample.quota_cores = 1.5;
  sample.disk_faults = 4;
  sample.disk_stalled_us = 0.125;
  sample.memory_stalled_us = 0.25;
  sample.swapped_bytes = 4'096;
  return sample;
}

TEST(HostLines, ReadBackAsWrittenAndAsTheSchemaSays) {
  std::string line;
  append_line(line, sample_of_everything());
  const test::JsonSchema schema(
      nlohmann::json::parse(std::ifstream(source_path("profiling/json/host.schema.json"))));
  EXPECT_EQ(schema.check(nlohmann::json::parse(line)), "");
  std::string text;
  append_header_line(text, test::sample_header());
  std::istringstream stream(text + line);
  const ProfileFile file = read_profile(stream, "run.jsonl");
  ASSERT_EQ(file.host.size(), 1u);
  std::string again;
  append_line(again, file.host.front());
  EXPECT_EQ(again, line);
}

TEST(HostSampler, SamplesReachTheFileUpToItsEnd) {
  const test::TemporaryDirectory folder;
  const std::filesystem::path path = folder.path() / "run.jsonl";
  HostSampler sampler(std::chrono::milliseconds(250), 100,
                      host_samples([] { return static_cast<int32_t>(::gettid()); }));
  sampler.sample_now();  // ends before the file begins
  WriterOptions options;
  options.host = &sampler;
  ProfileWriter writer(path, test::sample_header(), options);
  sampler.sample_now();
  writer.close();
  const std::vector<HostSample> samples = read_profile(path).host;
  ASSERT_GE(samples.size(), 2u);
  for (size_t i = 1; i < samples.size(); ++i)
    EXPECT_EQ(samples[i].begin_ns, samples[i - 1].end_ns) << "one follows the other";
  EXPECT_TRUE(sampler.after(samples.back().end_ns).size() <= 1u);
}

}  // namespace
}  // namespace minfer
