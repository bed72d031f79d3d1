#include "profiling/host/host_counters.h"

#include <charconv>
#include <fstream>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "kernels/base/thread_names.h"

namespace minfer {
namespace {

constexpr size_t kMostContent = 1u << 16;  // of a file: the lines that are looked for stand in front
constexpr size_t kMostThreads = 4'096;     // that are looked at

std::string_view next_word(std::string_view& text) {
  const size_t begin = std::min(text.find_first_not_of(" \t\n"), text.size());
  const size_t end = std::min(text.find_first_of(" \t\n", begin), text.size());
  const std::string_view word = text.substr(begin, end - begin);
  text.remove_prefix(end);
  return word;
}

std::optional<int64_t> number_of(std::string_view word) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end != word.data() ? std::optional(number) : std::nullopt;
}

int64_t next_number(std::string_view& text) {
  return number_of(next_word(text)).value_or(0);
}

/// The number behind `key`, which begins a line or follows a blank; 0: the key is not there.
int64_t number_behind(std::string_view text, std::string_view key) {
  for (size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1)) {
    if (at > 0 && text[at - 1] != '\n' && text[at - 1] != ' ') continue;
    std::string_view rest = text.substr(at + key.size());
    return next_number(rest);
  }
  return 0;
}

/// A number of a file `stat` of a process or thread: the one with `before` words between it and the name.
int64_t number_of_stat(std::string_view stat, int before) {
  stat.remove_prefix(std::min(stat.rfind(')') + 1, stat.size()));
  for (int i = 0; i < before; ++i)
    next_word(stat);
  return next_number(stat);
}

/// Time with some thread stalled, of a file of pressure stall information, which has microseconds.
int64_t stalled_ns(std::string_view pressure) {
  return number_behind(pressure, "total=") * 1'000;
}

}  // namespace

int64_t waited_ns_of_thread() {
  std::ifstream times("/proc/thread-self/schedstat");
  int64_t ran_ns = 0, waited_ns = 0;
  times >> ran_ns >> waited_ns;
  return waited_ns;
}

HostSample between(const HostCounters& before, const HostCounters& after, int32_t cores) {
  HostSample sample{.begin_ns = before.at_ns, .end_ns = after.at_ns};
  double none_waited = 1.0;  // share of the time
  for (const auto& [id, now] : after.threads) {
    const auto found = before.threads.find(id);
    if (found == before.threads.end()) continue;
    const double waited_us = us_of(now.waited_ns - found->second.waited_ns);
    ++sample.threads;
    sample.ran_us += us_of(now.ran_ns - found->second.ran_ns);
    sample.waited_us += waited_us;
    if (id == after.engine_thread) sample.engine_waited_us = waited_us;
    none_waited *= 1.0 - std::clamp(waited_us / std::max(1.0, sample.wall_us()), 0.0, 1.0);
  }
  sample.any_waited_us = (1.0 - none_waited) * sample.wall_us();
  sample.switches = std::max<int64_t>(0, after.switches - before.switches);
  sample.runnable = after.runnable;
  sample.stolen_us = us_of(after.stolen_ns - before.stolen_ns) / std::max(1, cores);
  sample.throttled_us = us_of(after.throttled_ns - before.throttled_ns);
  sample.quota_cores = after.quota_cores;
  sample.disk_faults = after.disk_faults - before.disk_faults;
  sample.disk_stalled_us = us_of(after.disk_stalled_ns - before.disk_stalled_ns);
  sample.memory_stalled_us = us_of(after.memory_stalled_ns - before.memory_stalled_ns);
  sample.swapped_bytes = after.swapped_bytes;
  sample.file_bytes = after.file_bytes;
  sample.core_mhz = after.core_mhz;
  sample.most_core_mhz = after.most_core_mhz;
  return sample;
}

HostReader::HostReader(std::filesystem::path root)
    : proc_(root / "proc"), cores_(root / "sys/devices/system/cpu") {
  std::string_view groups = content(proc_ / "self/cgroup");
  while (!groups.empty()) {  // ID:CONTROLLERS:PATH, of version 2 without controllers
    const size_t end = std::min(groups.find('\n'), groups.size());
    const std::string_view line = groups.substr(0, end);
    groups.remove_prefix(std::min(end + 1, groups.size()));
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string controllers(line.substr(first + 1, second - first - 1));
    if (!controllers.empty() && ("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
    const std::filesystem::path top = root / "sys/fs/cgroup" / (controllers.empty() ? "" : "cpu");
    std::filesystem::path folder = std::string(line.substr(std::min(second + 2, line.size())));
    for (;; folder = folder.parent_path()) {
      quotas_.push_back({.folder = top / folder, .is_version_2 = controllers.empty()});
      if (folder.empty()) break;
    }
  }
}

std::string_view HostReader::content(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  buffer_.resize(kMostContent);
  size_t size = 0;
  while (size < buffer_.size()) {
    const ssize_t count = ::read(file, buffer_.data() + size, buffer_.size() - size);
    if (count <= 0) break;
    size += static_cast<size_t>(count);
  }
  ::close(file);
  return std::string_view(buffer_).substr(0, size);
}

HostCounters HostReader::read(int32_t engine_thread) {
  HostCounters counters;
  counters.at_ns = now_ns();
  counters.engine_thread = engine_thread;
  read_threads(engine_thread, counters);
  read_clock(engine_thread, counters);
  read_machine(counters);
  read_quotas(counters);
  return counters;
}

bool HostReader::computes(int32_t thread) {
  const auto [known, is_new] = computes_.try_emplace(thread, false);
  if (is_new) {
    std::string_view name = content(proc_ / "self/task" / std::to_string(thread) / "comm");
    known->second = next_word(name) == kPoolThreadName;
  }
  return known->second;
}

void HostReader::read_threads(int32_t engine_thread, HostCounters& counters) {
  std::error_code error;
  for (std::filesystem::directory_iterator task(proc_ / "self/task", error), end; !error && task != end;
       task.increment(error)) {
    const auto id = static_cast<int32_t>(number_of(task->path().filename().native()).value_or(0));
    if (counters.threads.size() == kMostThreads) break;
    if (id == 0 || (id != engine_thread && !computes(id))) continue;
    std::string_view times = content(task->path() / "schedstat");
    if (times.empty()) continue;
    HostCounters::Thread& thread = counters.threads[id];
    thread.ran_ns = next_number(times);
    thread.waited_ns = next_number(times);
    if (id == engine_thread)
      counters.switches = number_behind(content(task->path() / "status"), "nonvoluntary_ctxt_switches:");
  }
}

void HostReader::read_machine(HostCounters& counters) {
  const std::string_view stat = content(proc_ / "stat");
  counters.runnable = static_cast<int32_t>(number_behind(stat, "procs_running"));
  std::string_view cores = stat.substr(std::min(stat.find(' '), stat.size()));
  constexpr int kBeforeStolen = 7;  // user, nice, system, idle, iowait, irq, softirq
  for (int i = 0; i < kBeforeStolen; ++i)
    next_number(cores);
  counters.stolen_ns = next_number(cores) * 1'000'000'000 / ::sysconf(_SC_CLK_TCK);
  counters.disk_stalled_ns = stalled_ns(content(proc_ / "pressure/io"));
  counters.memory_stalled_ns = stalled_ns(content(proc_ / "pressure/memory"));
  const std::string_view memory = content(proc_ / "self/status");
  counters.swapped_bytes = number_behind(memory, "VmSwap:") * 1024;
  counters.file_bytes = number_behind(memory, "RssFile:") * 1024;
  constexpr int kBeforeFaults = 9;
  counters.disk_faults = number_of_stat(content(proc_ / "self/stat"), kBeforeFaults);
}

void HostReader::read_clock(int32_t engine_thread, HostCounters& counters) {
  constexpr int kBeforeCore = 36;
  const std::string_view stat = content(proc_ / "self/task" / std::to_string(engine_thread) / "stat");
  if (stat.empty()) return;
  const auto folder = cores_ / fmt::format("cpu{}/cpufreq", number_of_stat(stat, kBeforeCore));
  const auto mhz = [&](const char* name) {
    std::string_view khz = content(folder / name);
    return static_cast<double>(next_number(khz)) * 1e-3;
  };
  counters.core_mhz = mhz("scaling_cur_freq");
  counters.most_core_mhz = mhz("cpuinfo_max_freq");
}

void HostReader::read_quotas(HostCounters& counters) {
  for (const Quota& group : quotas_) {
    double cores = 0.0;
    if (group.is_version_2) {
      std::string_view most = content(group.folder / "cpu.max");  // "max 100000" without a quota
      const double quota = static_cast<double>(next_number(most));
      cores = quota / static_cast<double>(std::max<int64_t>(1, next_number(most)));
    } else {
      std::string_view quota = content(group.folder / "cpu.cfs_quota_us");  // -1 without one
      cores = static_cast<double>(next_number(quota));
      std::string_view period = content(group.folder / "cpu.cfs_period_us");
      cores /= static_cast<double>(std::max<int64_t>(1, next_number(period)));
    }
    if (cores <= 0.0) continue;
    counters.quota_cores = counters.quota_cores > 0.0 ? std::min(counters.quota_cores, cores) : cores;
    const std::string_view stat = content(group.folder / "cpu.stat");
    counters.throttled_ns += group.is_version_2 ? number_behind(stat, "throttled_usec") * 1'000
                                                : number_behind(stat, "throttled_time");
  }
}

std::function<std::vector<HostSample>()> host_samples(std::function<int32_t()> engine_thread) {
  HostReader reader;
  HostCounters last = reader.read(engine_thread());
  return [reader, last, engine_thread = std::move(engine_thread)]() mutable {
    HostCounters now = reader.read(engine_thread());
    const auto cores = static_cast<int32_t>(std::thread::hardware_concurrency());  // steal is the machine's
    const std::vector samples{between(last, now, cores)};
    last = std::move(now);
    return samples;
  };
}

}  // namespace minfer
