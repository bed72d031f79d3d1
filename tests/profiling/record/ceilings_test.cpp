#include "profiling/record/ceilings.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sched.h>
#include <unistd.h>

#include "kernels/base/error.h"
#include "kernels/cpu/lanes/peak.h"
#include "kernels/cuda/device/devices.h"
#include "profiling/record/machine.h"
#include "profiling/record/profile_header.h"

namespace minfer {
namespace {

class CeilingsCache : public testing::Test {
 protected:
  CeilingsCache() { unsetenv("MINFER_CEILINGS"); }
  ~CeilingsCache() override { std::filesystem::remove_all(folder); }

  void write(const std::string& content) const {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << content;
  }
  std::string cache_of(const std::string& cached_key) const {
    return nlohmann::json{{"schema", "minfer.ceilings/2"},
                          {"machines", {{cached_key, {{"read_gbps", 12.5}, {"gflops", 345.0}, {"runs", 3}}}}}}
        .dump();
  }

  std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("minfer_ceilings_" + std::to_string(getpid()));
  std::filesystem::path path = folder / "below" / "ceilings.json";
};

int measurements = 0;

/// A measurement that finds these speeds.
std::function<Ceilings()> found(double read_gbps, double gflops) {
  return [=]() -> Ceilings {
    ++measurements;
    return {read_gbps, gflops};
  };
}

TEST_F(CeilingsCache, TakesWhatIsThere) {
  write(cache_of("this processor|3|1.2.3"));
  measurements = 0;
  const Ceilings ceilings = load_or_measure_ceilings("this processor|3|1.2.3", found(1.0, 2.0), path);
  EXPECT_DOUBLE_EQ(ceilings.read_gbps, 12.5);
  EXPECT_DOUBLE_EQ(ceilings.gflops, 345.0);
  EXPECT_EQ(measurements, 0);
}

TEST_F(CeilingsCache, KeepsTheBestOfThreeMeasurements) {
  measurements = 0;
  for (const auto& [read_gbps, gflops] :
       {std::pair{10.0, 300.0}, {30.0, 100.0}, {20.0, 200.0}, {90.0, 900.0}})
    load_or_measure_ceilings("a", found(read_gbps, gflops), path);
  EXPECT_EQ(measurements, 3);
  const Ceilings ceilings = load_or_measure_ceilings("a", found(90.0, 900.0), path);
  EXPECT_DOUBLE_EQ(ceilings.read_gbps, 30.0);
  EXPECT_DOUBLE_EQ(ceilings.gflops, 300.0);
  EXPECT_EQ(ceilings.runs, 3);
  EXPECT_GT(ceilings.measured_unix_s, 1'700'000'000);
  ProfileHeader header;
  header.ceilings = {.read_gbps = 30.0, .gflops = 300.0, .runs = 3, .measured_unix_s = 1'795'737'600};
  EXPECT_EQ(ceilings_text(header), "30.0 GB/s read, 300.0 GFLOP/s f32");
  EXPECT_EQ(measured_text(header.ceilings), ", best of 3 measurements, the last on 2026-11-27");
}

/// The same while other processes used the cores.
std::function<Ceilings()> found_beside_others(double read_gbps, double gflops) {
  return [=]() -> Ceilings {
    ++measurements;
    return {.read_gbps = read_gbps, .gflops = gflops, .disturbed_runs = 1};
  };
}

TEST_F(CeilingsCache, AMeasurementOnTakenCoresIsNoneOfTheThree) {
  measurements = 0;
  for (int i = 0; i < 2; ++i)
    load_or_measure_ceilings("a", found_beside_others(10.0, 100.0), path);
  const Ceilings taken = load_or_measure_ceilings("a", found_beside_others(5.0, 50.0), path);
  EXPECT_EQ(taken.runs, 0);
  EXPECT_EQ(taken.disturbed_runs, 3);
  EXPECT_DOUBLE_EQ(taken.gflops, 100.0) << "known, if not well";
  EXPECT_NE(
      measured_text(taken).find(", best of 3 measurements (3 while others took the cores), the last on"),
      std::string::npos)
      << measured_text(taken);
  for (int i = 0; i < 5; ++i)
    load_or_measure_ceilings("a", found(40.0, 460.0), path);
  EXPECT_EQ(measurements, 6) << "three of a machine that is alone";
  const Ceilings ceilings = load_or_measure_ceilings("a", found(90.0, 900.0), path);
  EXPECT_DOUBLE_EQ(ceilings.read_gbps, 40.0);
  EXPECT_DOUBLE_EQ(ceilings.gflops, 460.0);
  EXPECT_EQ(ceilings.runs, 3);
}

TEST_F(CeilingsCache, AMachineThatIsNeverAloneIsMeasuredTwelveTimes) {
  measurements = 0;
  for (int i = 0; i < 20; ++i)
    load_or_measure_ceilings("a", found_beside_others(10.0, 100.0), path);
  EXPECT_EQ(measurements, kMostRuns);
}

TEST_F(CeilingsCache, MeasuresAgainOnceAnOpHasBeatenThem) {
  measure_ceilings_again("a", path);
  EXPECT_FALSE(std::filesystem::exists(path)) << "there is nothing to be beaten";
  for (int i = 0; i < 3; ++i)
    load_or_measure_ceilings("a", found(28.0, 212.0), path);
  write(nlohmann::json::parse(std::ifstream(path)).dump());
  measurements = 0;
  measure_ceilings_again("a", path);
  measure_ceilings_again("b", path);
  const Ceilings better = load_or_measure_ceilings("a", found(40.0, 460.0), path);
  EXPECT_DOUBLE_EQ(better.read_gbps, 40.0);
  EXPECT_DOUBLE_EQ(better.gflops, 460.0);
  EXPECT_EQ(better.runs, 4);
  EXPECT_DOUBLE_EQ(load_or_measure_ceilings("a", found(90.0, 900.0), path).gflops, 460.0);
  EXPECT_EQ(measurements, 1) << "until the next time";
  for (int i = 0; i < 20; ++i) {
    measure_ceilings_again("a", path);
    load_or_measure_ceilings("a", found(1.0, 2.0), path);
  }
  EXPECT_EQ(measurements, 1 + kMostRuns - 4) << "an op that always beats them is counted wrongly";
}

TEST_F(CeilingsCache, KeepsTheBestOfEachUnit) {
  const auto found_by_unit = [&](double times) {
    return load_or_measure_ceilings(
        "a",
        [=] {
          return Ceilings{.read_gbps = 1.0,
                          .gflops = 2.0,
                          .fp8_gflops = 3.0 * times,
                          .vector_gflops = 4.0,
                          .bf16_gflops = 5.0 * times,
                          .int8_gflops = 6.0 / times};
        },
        path);
  };
  found_by_unit(1.0);
  found_by_unit(2.0);
  found_by_unit(0.5);
  const Ceilings kept = found_by_unit(9.0);
  EXPECT_DOUBLE_EQ(kept.fp8_gflops, 6.0);
  EXPECT_DOUBLE_EQ(kept.vector_gflops, 4.0);
  EXPECT_DOUBLE_EQ(kept.bf16_gflops, 10.0);
  EXPECT_DOUBLE_EQ(kept.int8_gflops, 12.0);
}

TEST_F(CeilingsCache, MeasuresForEachKeyAndKeepsOthers) {
  write(cache_of("another processor|1|1.2.3"));
  measurements = 0;
  for (int i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(load_or_measure_ceilings("a", found(10.0, 100.0), path).read_gbps, 10.0);
    EXPECT_DOUBLE_EQ(load_or_measure_ceilings("b", found(20.0, 200.0), path).gflops, 200.0);
    EXPECT_DOUBLE_EQ(load_or_measure_ceilings("c", found(30.0, 300.0), path).gflops, 300.0);
  }
  EXPECT_EQ(measurements, 9);
  const nlohmann::json cache = nlohmann::json::parse(std::ifstream(path));
  EXPECT_EQ(cache["machines"].size(), 4u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path.parent_path()), {}),
            1);  // no draft is left
}

TEST_F(CeilingsCache, CeilingsThatWereKeptBeforeThereWereSomeByTypeAreMeasuredAnew) {
  write(R"({"schema":"minfer.ceilings/1","machines":{"a":{"read_gbps":12.5,"gflops":345.0,"runs":3}}})");
  measurements = 0;
  EXPECT_DOUBLE_EQ(load_or_measure_ceilings("a", found(1.0, 2.0), path).gflops, 2.0);
  EXPECT_EQ(measurements, 1);
}

TEST(Ceilings, OfTheGpusThatHaveThem) {
  EXPECT_FALSE(has_fp8_tensor_cores({.name = "A100", .major = 8, .minor = 0}));
  EXPECT_TRUE(has_fp8_tensor_cores({.name = "L40", .major = 8, .minor = 9}));
  EXPECT_TRUE(has_fp8_tensor_cores({.name = "H200", .major = 9, .minor = 0}));
}

TEST_F(CeilingsCache, AnUnusableCacheIsDoneWithout) {
  for (const std::string content :
       {"not JSON", "[]", R"({"schema":"minfer.ceilings/2","machines":7})",
        R"({"schema":"minfer.ceilings/2","machines":{"a":{"read_gbps":"fast"}}})"}) {
    write(content);
    measurements = 0;
    EXPECT_TRUE(load_or_measure_ceilings("a", found(1.0, 2.0), path).known()) << content;
    EXPECT_TRUE(load_or_measure_ceilings("a", found(1.0, 2.0), path).known()) << content;
    const nlohmann::json cache = nlohmann::json::parse(std::ifstream(path));
    EXPECT_EQ(cache["machines"]["a"]["runs"], 2) << content << ": replaced by a sound one";
  }
  EXPECT_TRUE(load_or_measure_ceilings("a", found(1.0, 2.0), "/proc/minfer/ceilings.json").known());
}

TEST_F(CeilingsCache, KeepsNothingOfAMeasurementThatFailed) {
  EXPECT_FALSE(load_or_measure_ceilings("a", found(0.0, 0.0), path).known());
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(load_or_measure_ceilings("a", found(1.0, 2.0), path).known());
}

TEST_F(CeilingsCache, AProcessorIsKnownByItsThreads) {
  write(cache_of(processor_name() + "|3|1.2.3"));
  EXPECT_DOUBLE_EQ(device_ceilings({.name = "cpu", .device = "", .threads = 3}, "1.2.3", path).read_gbps,
                   12.5);
}

TEST_F(CeilingsCache, SkippedOnRequest) {
  setenv("MINFER_CEILINGS", "skip", 1);
  EXPECT_FALSE(load_or_measure_ceilings("a", found(1.0, 2.0), path).known());
  EXPECT_FALSE(std::filesystem::exists(path));
  unsetenv("MINFER_CEILINGS");
}

TEST_F(CeilingsCache, PathFollowsTheEnvironment) {
  const char* home = std::getenv("HOME");
  const std::string saved = home != nullptr ? home : "";
  setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(ceilings_cache_path(), "/cache/minfer/ceilings.json");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", "/home/me", 1);
  EXPECT_EQ(ceilings_cache_path(), "/home/me/.cache/minfer/ceilings.json");
  unsetenv("HOME");
  EXPECT_EQ(ceilings_cache_path(), "");
  if (home != nullptr) setenv("HOME", saved.c_str(), 1);
}

TEST(MeasureCeilings, GivesNumbersInTheirUnits) {
  const Ceilings measured = measure_ceilings(2);
  // Bounds that hold for any machine, however busy, and that a wrong unit exceeds.
  EXPECT_GT(measured.read_gbps, 1e-3);
  EXPECT_LT(measured.read_gbps, 5'000.0);
  EXPECT_GT(measured.gflops, 1e-3);
  EXPECT_LT(measured.gflops, 100'000.0);
  EXPECT_EQ(measured.bf16_gflops > 0.0, cpu::bf16_loop().run != nullptr) << "of cores that have such units";
  EXPECT_EQ(measured.int8_gflops > 0.0, cpu::int8_loop().run != nullptr);
  EXPECT_LT(std::max(measured.bf16_gflops, measured.int8_gflops), 1e6);
  EXPECT_EQ(measured.tries(), measured.disturbed_runs);
}

TEST(MeasureCeilings, SeesThatOthersTakeTheCores) {
  // Threads of one core, which use it as long as they run: each gets at most half of it.
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &before)) continue;
    CPU_SET(core, &one);
    break;
  }
  if (std::ifstream schedstat("/proc/thread-self/schedstat"); !schedstat) GTEST_SKIP() << "no schedstat here";
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const Ceilings measured = measure_ceilings(2);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(measured.disturbed_runs, 1);
}

TEST(MeasureCeilings, RefusesNoThreads) {
  EXPECT_THROW(measure_ceilings(0), Error);
}

TEST(PeakLoops, CountTheirWork) {
  for (const cpu::Isa isa : {cpu::Isa::portable, cpu::Isa::avx2, cpu::Isa::avx512}) {
    if (isa > cpu::detected_isa()) continue;
    const cpu::PeakLoops loops = cpu::peak_loops(isa);
    // x = 0.999 x + 0.001 tends to 1 in each of the twelve chains, whose first floats are summed.
    EXPECT_NEAR(loops.fma(200'000), 12.0f, 1e-2f) << cpu::name(isa);
    EXPECT_EQ(loops.flops_per_round % 24, 0) << cpu::name(isa);
    alignas(64) std::array<char, 1024> data{};
    EXPECT_EQ(loops.read(data.data(), data.size()), 0u);
    data[512] = 1;  // the first float of the second block of 512 bytes
    EXPECT_EQ(loops.read(data.data(), data.size()), 1u) << cpu::name(isa);
  }
}

TEST(PeakLoops, OfNarrowTypesDoMoreThanThoseOfF32) {
  const int64_t f32 = cpu::peak_loops(cpu::detected_isa()).flops_per_round;
  for (const cpu::NarrowLoop& loop : {cpu::bf16_loop(), cpu::int8_loop()}) {
    if (loop.run == nullptr) continue;
    loop.run(1'000);
    EXPECT_GT(loop.rounds, 0);
    EXPECT_GE(loop.flops_per_round, 2 * f32);
  }
  EXPECT_TRUE(cpu::detected_isa() != cpu::Isa::portable || cpu::int8_loop().run == nullptr);
}

TEST(Machine, SaysWhatItIs) {
  EXPECT_FALSE(processor_name().empty());
  EXPECT_GT(available_memory_bytes(), 16u << 20);
}

}  // namespace
}  // namespace minfer
