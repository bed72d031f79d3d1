#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace minfer {

/// Of `candidates` those that someone who wrote `name` may have meant, the nearest first, three at most. Near means few
/// slips of the keyboard apart (Damerau's distance: a letter too many, missing, wrong, or two swapped; one in three
/// letters), or one begins with the other. Upper and lower case are the same.
std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> candidates);

/// The same as the end of a message: `; did you mean "a" or "b"?`, or nothing.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

/// Likewise for the path of a file that is not there: what stands in the folder under a name that is near. Of a path
/// through a folder that is not there, that folder.
std::string did_you_mean_path(const std::filesystem::path& path);

}  // namespace minfer
