#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace minfer {

/// The members of `candidates` that a user who wrote `name` may have meant: at most three, nearest first. Near means few
/// typing errors apart (Damerau's distance: an extra, missing or wrong letter, or two swapped; one in three
/// letters), or that one begins with the other. Case does not count.
std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> candidates);

/// The same as the end of a message: `; did you mean "a" or "b"?`, or nothing.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

/// The same for the path of a missing file: entries of its folder with a near name. For a path
/// through a missing folder, entries near that folder's name.
std::string did_you_mean_path(const std::filesystem::path& path);

}  // namespace minfer
