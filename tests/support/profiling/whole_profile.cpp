#include "tests/support/profiling/whole_profile.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "profiling/json/lines.h"
#include "profiling/report/report.h"
#include "tests/support/profiling/report_of_file.h"
#include "tests/support/profiling/sample_counters.h"
#include "tests/support/profiling/sample_profile.h"
#include "tests/support/profiling/traced_steps.h"

namespace minfer::test {

ProfileHeader whole_profile_header(LaunchTable& launches) {
  for (const KernelLaunch& launch : traced_launches())
    launches.add(launch);
  ProfileHeader header = sample_header();
  header.ops = traced_ops();
  header.launches = &launches;
  header.asked = {.kernels = true, .counters = true};
  header.memory = {.total_bytes = 1'000,
                   .used_bytes = 900,
                   .used_before_bytes = 50,
                   .parts = {{"weights", 600, 620, true}, {"staging", 70, 80, false}}};
  return header;
}

void write_whole_profile(ProfileWriter& writer, int64_t steps, bool ends) {
  RangeTrace range = traced_range(steps);
  for (const TracedStep& step : range.steps) {
    StepRecord record;
    record.step = step.step;
    record.batch.shape = step.shape;
    record.stamps = step.stamps;
    record.on_device = true;
    record.start_ns = step.stamps.ops.front().begin_ns;
    record.end_ns = step.stamps.end_ns;
    writer.consume(record);
  }
  EndedRequest request;
  request.id = "request-0";
  request.finish = "stop";
  writer.consume_request(request);
  writer.add_range(std::move(range));
  std::string counters;
  append_line(counters, sample_counters());
  writer.add_line(std::move(counters));
  if (!ends) return;
  std::string memory;
  append_memory_line(memory, {.total_bytes = 1'000, .used_bytes = 950, .used_before_bytes = 50, .parts = {}},
                     81'234'567'890'123);
  writer.add_line(std::move(memory));
}

uint64_t num_other_lines(int64_t steps) {
  const auto header_launches_range_request = 1 + traced_launches().size() + 1 + 1;
  const uint64_t of_a_step = 1 + 5;  // itself, four kernels and a copy
  return header_launches_range_request + of_a_step * static_cast<uint64_t>(steps) + 2;
}

size_t num_lines(const ProfileFile& file) {
  return 1 + file.launches.size() + file.steps.size() + file.ranges.size() + file.traced.size() +
         file.kernels.size() + file.requests.size() + file.counters.size() +
         (file.memory_at_end.total_bytes > 0 ? 1 : 0);
}

ProfileFile read_cut_profile(const std::filesystem::path& path) {
  ProfileFile file = read_profile(path);
  std::ifstream stream(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  EXPECT_EQ(num_lines(file), static_cast<size_t>(std::ranges::count(text, '\n')));
  EXPECT_EQ(file.note.empty(), text.ends_with('\n'));
  const std::string report = file.steps.empty() ? "attributed" : render_report(file, {});
  EXPECT_NE(report.find("attributed"), std::string::npos);
  return file;
}

}  // namespace minfer::test
