#include "kernels/comm/rank_gpus.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include "kernels/base/error.h"

namespace minfer {
namespace {

[[noreturn]] void fail_with_too_few(std::span<const RankGpus> ranks, const RankGpus& rank) {
  const auto needed = std::ranges::count(ranks, rank.host, &RankGpus::host);
  std::set<std::string> found;
  for (const RankGpus& other : ranks) {
    if (other.host != rank.host) continue;
    for (const RankGpus::Gpu& gpu : other.gpus)
      found.insert(gpu.id);
  }
  fail(
      "device cuda: host {} has {} GPUs, {} are needed: each of its processes is a rank on a GPU of its "
      "own{}",
      rank.host, found.size(), needed, rank.error.empty() ? "" : " (" + rank.error + ")");
}

}  // namespace

std::string on_one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return text;
}

std::string write_gpus(const RankGpus& gpus) {
  std::string text;
  for (const std::string* line : {&gpus.host, &gpus.error, &gpus.nccl, &gpus.nccl_error})
    text += on_one_line(*line) + '\n';
  for (const RankGpus::Gpu& gpu : gpus.gpus)
    text += fmt::format("{}\t{}\t{}\n", gpu.is_supported ? 1 : 0, on_one_line(gpu.id), on_one_line(gpu.name));
  return text;
}

RankGpus read_gpus(const std::string& text) {
  std::istringstream lines(text);
  RankGpus gpus;
  for (std::string* line : {&gpus.host, &gpus.error, &gpus.nccl, &gpus.nccl_error})
    if (!std::getline(lines, *line)) fail("GPUs of a rank: {} bytes without their meaning", text.size());
  for (std::string line; std::getline(lines, line);) {
    const size_t id = line.find('\t'), name = id == std::string::npos ? id : line.find('\t', id + 1);
    if (name == std::string::npos) fail("GPUs of a rank: a line of {} bytes has no name", line.size());
    gpus.gpus.push_back({.id = line.substr(id + 1, name - id - 1),
                         .name = line.substr(name + 1),
                         .is_supported = line.front() == '1'});
  }
  return gpus;
}

std::vector<int32_t> device_of_ranks(std::span<const RankGpus> ranks) {
  std::set<std::pair<std::string, std::string>> taken;  // host and GPU
  std::vector<int32_t> devices;
  for (const RankGpus& rank : ranks) {
    const auto gpu = std::ranges::find_if(rank.gpus, [&](const RankGpus::Gpu& own) {
      return !taken.contains({rank.host, own.id});
    });
    if (gpu == rank.gpus.end()) fail_with_too_few(ranks, rank);
    if (!gpu->is_supported) {
      fail("device cuda: host {}: {} is not supported, compute capability 8.0 or later is needed", rank.host,
           gpu->name);
    }
    taken.emplace(rank.host, gpu->id);
    devices.push_back(static_cast<int32_t>(gpu - rank.gpus.begin()));
  }
  return devices;
}

std::string why_no_nccl(std::span<const RankGpus> ranks) {
  for (const RankGpus& rank : ranks) {
    if (rank.nccl.empty()) return fmt::format("host {}: {}", rank.host, rank.nccl_error);
    if (rank.nccl != ranks.front().nccl) {
      return fmt::format("host {} has version {}, host {} has {}", rank.host, rank.nccl, ranks.front().host,
                         ranks.front().nccl);
    }
  }
  return {};
}

std::string why_no_shared_memory(std::span<const RankGpus> ranks, int32_t most_ranks) {
  if (std::ssize(ranks) > most_ranks) return fmt::format("there are more than {} ranks", most_ranks);
  for (const RankGpus& rank : ranks) {
    if (rank.host != ranks.front().host)
      return fmt::format("the ranks are on several hosts ({} and {})", ranks.front().host, rank.host);
  }
  return {};
}

}  // namespace minfer
