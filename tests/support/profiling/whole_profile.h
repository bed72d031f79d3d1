#pragma once

#include <cstdint>
#include <filesystem>

#include "kernels/launches.h"
#include "profiling/json/json_reader.h"
#include "profiling/json/profile_writer.h"

namespace minfer::test {

/// The header of a profile of traced_range()'s steps. `launches`: an empty table, which is filled and must outlive the header's users.
ProfileHeader whole_profile_header(LaunchTable& launches);

/// Writes `steps` steps and then a line of every other kind: a request that has ended, the steps' range with its kernels, a window of
/// counters, and (if `ends`) the memory at the end. These are num_other_lines(steps) lines beside the lines of steps, including the header
/// and the launches.
void write_whole_profile(ProfileWriter& writer, int64_t steps, bool ends = true);
uint64_t num_other_lines(int64_t steps);

/// The number of lines that the file was read from.
size_t num_lines(const ProfileFile& file);

/// Reads a file that was cut somewhere and makes a report of it. Fails the test if a whole line was not read.
ProfileFile read_cut_profile(const std::filesystem::path& path);

}  // namespace minfer::test
