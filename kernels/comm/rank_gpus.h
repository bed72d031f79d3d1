#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace minfer {

/// The facts about GPUs that a rank's process tells the others, so that all processes come to the same conclusions.
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
  std::string nccl;        ///< version of NCCL, e.g. "2.21.5"; empty: it cannot be loaded
  std::string nccl_error;  ///< why not
  bool operator==(const RankGpus&) const = default;
};

/// A text with spaces in place of control characters, as a part of a line that ranks tell each other.
std::string on_one_line(std::string text);

/// Writes and reads this as text. Throws Error if the text is not of this form.
std::string write_gpus(const RankGpus& gpus);
RankGpus read_gpus(const std::string& text);

/// The GPU of each rank, by its number in the rank's own list. Rank by rank, each takes the first GPU that it sees and that no earlier
/// rank has taken. So rank r of a host has GPU r if all ranks see the same GPUs, and GPU 0 if the launcher shows each rank another GPU.
/// Throws Error if a host has too few, or if one is not supported.
std::vector<int32_t> device_of_ranks(std::span<const RankGpus> ranks);

/// Why NCCL cannot be used, naming a host; empty: it can, since all have the same version.
std::string why_no_nccl(std::span<const RankGpus> ranks);

/// Why GPUs of different processes cannot write to each other's memory, as far as the lists say; empty: they may be able to.
std::string why_no_shared_memory(std::span<const RankGpus> ranks, int32_t most_ranks);

}  // namespace minfer
