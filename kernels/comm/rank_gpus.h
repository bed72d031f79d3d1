#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace minfer {

/// What the process of a rank says of its GPUs, so that all processes come to the same conclusions.
struct RankGpus {
  struct Gpu {
    std::string
        id;  ///< of the device itself: two processes of a host that see it may give it different numbers
    std::string name;  ///< e.g. "NVIDIA H200"
    bool is_supported = true;
    bool operator==(const Gpu&) const = default;
  };
  std::string host;
  std::vector<Gpu> gpus;   ///< those that it sees, by their number
  std::string error;       ///< why it sees none
  std::string nccl;        ///< NCCL's version, e.g. "2.21.5"; empty: it cannot be loaded
  std::string nccl_error;  ///< why not
  bool operator==(const RankGpus&) const = default;
};

/// As text, and back. Throws Error if it is none.
std::string write_gpus(const RankGpus& gpus);
RankGpus read_gpus(const std::string& text);

/// The GPU of each rank, by its number in the rank's own list: one after the other takes the first that it sees and that no rank before
/// it has taken. So rank r of a host has GPU r if they all see the same, and GPU 0 if the launcher shows each another one. Throws Error
/// if a host has too few, or one is not supported.
std::vector<int32_t> device_of_ranks(std::span<const RankGpus> ranks);

/// Why NCCL cannot be used, naming a host; empty: it can, all have the same version.
std::string why_no_nccl(std::span<const RankGpus> ranks);

/// Why GPUs of different processes cannot write into each other's memory as far as the lists say; empty: they may be able to.
std::string why_no_shared_memory(std::span<const RankGpus> ranks, int32_t most_ranks);

}  // namespace minfer
