#include "models/gguf/nearest_name.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include <fmt/ranges.h>

#include "models/gguf/printable.h"

namespace minfer {
namespace {

constexpr size_t kMostNames = 3;
/// Entries of a folder that are looked at, and the longest name that is compared.
constexpr size_t kMostEntries = 10'000;
constexpr size_t kLongestName = 256;

std::string lower_case(std::string_view text) {
  std::string lower(text.substr(0, kLongestName));
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

/// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j)
    last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

/// How far apart two names are, or more than `limit`.
size_t distance(const std::string& name, const std::string& candidate, size_t limit) {
  constexpr size_t kShortestPrefix = 2;
  const bool begins = std::min(name.size(), candidate.size()) >= kShortestPrefix &&
                      (candidate.starts_with(name) || name.starts_with(candidate));
  if (begins) return std::min(limit, edit_distance(name, candidate));
  const size_t difference = std::max(name.size(), candidate.size()) - std::min(name.size(), candidate.size());
  return difference > limit ? difference : edit_distance(name, candidate);
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
    if (names.size() == kMostEntries) break;
  }
  return names;
}

bool is_there(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

std::string question(std::vector<std::string> names) {
  if (names.empty()) return "";
  for (std::string& name : names)
    name = fmt::format("\"{}\"", printable(name));
  return fmt::format("; did you mean {}?", fmt::join(names, " or "));
}

}  // namespace

std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> candidates) {
  const std::string wanted = lower_case(name);
  const size_t limit = std::max<size_t>(1, wanted.size() / 3);
  std::vector<std::pair<size_t, std::string>> near;
  for (const std::string& candidate : candidates) {
    const size_t apart = distance(wanted, lower_case(candidate), limit);
    if (apart <= limit && apart < candidate.size()) near.emplace_back(apart, candidate);
  }
  std::ranges::sort(near);
  near.resize(std::min(near.size(), kMostNames));
  std::vector<std::string> names;
  for (auto& [apart, candidate] : near)
    names.push_back(std::move(candidate));
  return names;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates) {
  return question(nearest_names(name, candidates));
}

std::string did_you_mean_path(const std::filesystem::path& path) {
  std::filesystem::path found;  // the part of the path that is there
  for (const std::filesystem::path& name : path) {
    const std::filesystem::path next = found / name;
    if (is_there(next)) {
      found = next;
      continue;
    }
    std::vector<std::string> near =
        nearest_names(name.string(), names_in(found.empty() ? std::filesystem::path(".") : found));
    for (std::string& candidate : near)
      candidate = (found / candidate).string();
    return question(near);
  }
  return "";
}

}  // namespace minfer
