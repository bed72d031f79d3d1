#pragma once

#include <cstdint>
#include <filesystem>

#include "kernels/launches.h"
#include "profiling/json/json_reader.h"
#include "profiling/json/profile_writer.h"

namespace minfer::test {

/// The header of a profile of the steps of traced_range(). `launches`: an empty table, which is filled and outlives the header's users.
ProfileHeader whole_profile_header(LaunchTable& launches);

/// Has the writer take `steps` steps and, behind them, a line of every other kind: a request that has ended, their range with its kernels, a window of counters,
/// the memory at the end. That is num_other_lines(steps) lines beside those of steps, the header and launches included.
/// `ends`: with the line of the memory.
void write_whole_profile(ProfileWriter& writer, int64_t steps, bool ends = true);
uint64_t num_other_lines(int64_t steps);

/// Lines that the file was read from.
size_t num_lines(const ProfileFile& file);

/// Reads a file that was cut somewhere, and has the report made of it; fails the test where a whole line was not read.
ProfileFile read_cut_profile(const std::filesystem::path& path);

}  // namespace minfer::test
