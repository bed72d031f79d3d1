// The result by which each rule was last measured, and whether the kernels that it is about have changed since.
#include <array>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "profiling/findings/measured_pairs.h"
#include "profiling/findings/rules.h"
#include "tests/support/paths.h"

namespace minfer {
namespace {

constexpr const char* kResults = "tests/benchmarks/results/";

nlohmann::json measured_rules() {
  return nlohmann::json::parse(std::ifstream(source_path("profiling/findings/measured_rules.json")));
}

/// The output of git in the source tree; nothing: it failed.
std::optional<std::string> git(const std::string& arguments) {
  const std::string command = fmt::format("git -C '{}' {} 2>/dev/null", source_path(""), arguments);
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::string text;
  std::array<char, 1 << 16> buffer;
  while (const size_t count = fread(buffer.data(), 1, buffer.size(), pipe))
    text.append(buffer.data(), count);
  return pclose(pipe) == 0 ? std::optional(text) : std::nullopt;
}

/// Counts words, numbers and signs of a line of code, without comments.
void count_tokens(std::string_view line, int by, std::map<std::string, int>& counts) {
  line = line.substr(0, line.find("//"));
  if (const size_t begin = line.find_first_not_of(" \t");
      begin == std::string_view::npos || line[begin] == '#')
    return;  // includes and the like follow when files move
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) counts[std::exchange(word, {})] += by;
  };
  for (const char c : line) {
    const bool is_word = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
    if (is_word) {
      word += c;
      continue;
    }
    end_word();
    if (c != ' ' && c != '\t') counts[std::string(1, c)] += by;
  }
  end_word();
}

bool lies_under(std::string_view path, const std::vector<std::string>& folders) {
  return std::ranges::any_of(
      folders, [&](const std::string& folder) { return path == folder || path.starts_with(folder + "/"); });
}

/// Tokens that differ in the code under `folders`, from the output of `git diff -U0`. Comments do not count, nor the order of lines,
/// their breaks, or the file that they are in.
int changed_tokens(const std::string& diff, const std::vector<std::string>& folders) {
  std::map<std::string, int> counts;
  bool counted = false;
  std::istringstream lines(diff);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("diff --git a/")) {
      const std::string path = line.substr(line.rfind(" b/") + 3);
      counted = lies_under(path, folders) && !path.ends_with(".md");
    } else if (counted && !line.starts_with("+++") && !line.starts_with("---") &&
               (line.starts_with("+") || line.starts_with("-"))) {
      count_tokens(std::string_view(line).substr(1), line[0] == '+' ? 1 : -1, counts);
    }
  }
  int changed = 0;
  for (const auto& [token, count] : counts)
    changed += std::abs(count);
  return changed;
}

TEST(MeasuredRules, NameEachRuleAndOnlyThose) {
  std::set<std::string> named, known;
  for (const nlohmann::json& row : measured_rules())
    named.insert(row.at("rule"));
  for (const std::span<const Rule> rules : all_rules()) {
    for (const Rule& rule : rules)
      known.emplace(rule.name);
  }
  EXPECT_EQ(named, known);
}

TEST(MeasuredRules, EachHasItsResultOrSaysWhyThereIsNone) {
  std::set<std::pair<std::string, bool>> measured, pairs;
  for (const nlohmann::json& row : measured_rules()) {
    if (row.contains("not_measured")) {
      EXPECT_FALSE(row.at("not_measured").get<std::string>().empty()) << row;
      EXPECT_FALSE(row.contains("result")) << row;
      continue;
    }
    const std::string path = source_path(kResults + row.at("result").get<std::string>());
    std::ifstream file(path);
    bool has_pair = false;
    for (std::string line; std::getline(file, line);) {
      const nlohmann::json result = nlohmann::json::parse(line);
      has_pair = has_pair || (result.at("first") == row.at("rule") && result.contains("real_gain"));
    }
    EXPECT_TRUE(has_pair) << row << ": " << path << " has no pair of it";
    measured.emplace(row.at("rule"), row.at("device") != "cpu");
  }
  for (const MeasuredPair& pair : measured_pairs())
    pairs.emplace(pair.rule, pair.on_gpu);
  EXPECT_EQ(measured, pairs);
}

TEST(MeasuredRules, NameTheCommitOfTheirResult) {
  if (!git("rev-parse --verify HEAD~400")) GTEST_SKIP() << "no git history here";
  for (const nlohmann::json& row : measured_rules()) {
    if (row.contains("not_measured")) continue;
    const std::string commit = row.at("commit"), file = row.at("result");
    const auto last = git(fmt::format("log -1 --format=%H -- {}{}", kResults, file));
    ASSERT_TRUE(last) << file;
    EXPECT_TRUE(last->starts_with(commit))
        << row << ": " << file << " was last written by " << *last << ": name that one, and what it measured";
  }
}

/// A pair that is older than its kernels' code fails here. Measure the rule again; or, if the change cannot matter to it, add
/// "unaffected": {"commit": the change, "why": ...} to its row; or write "overtaken" until somebody has the device.
TEST(MeasuredRules, AreNoOlderThanTheKernelsThatTheySpeakOf) {
  std::map<std::string, std::string> diffs;
  for (const nlohmann::json& row : measured_rules()) {
    if (row.contains("not_measured") || row.at("kernels").empty()) continue;
    const auto folders = row.at("kernels").get<std::vector<std::string>>();
    for (const std::string& folder : folders)
      EXPECT_TRUE(std::filesystem::exists(source_path(folder))) << row << ": " << folder << " is gone";
    std::string since = row.at("commit");
    if (row.contains("unaffected")) {
      EXPECT_FALSE(row.at("unaffected").at("why").get<std::string>().empty()) << row;
      const std::string checked = row.at("unaffected").at("commit");
      EXPECT_TRUE(!git("rev-parse --verify HEAD~400") ||
                  git(fmt::format("merge-base --is-ancestor {} {}", since, checked)))
          << row << ": older than its result";
      since = checked;
    }
    if (!diffs.contains(since)) {
      const auto diff = git(fmt::format("diff --no-color --no-ext-diff -M -w -U0 {} -- kernels", since));
      if (!diff) GTEST_SKIP() << "no git history here that reaches back to " << since;
      diffs[since] = *diff;
    }
    const int changed = changed_tokens(diffs.at(since), folders);
    if (row.contains("overtaken")) {
      EXPECT_GT(changed, 0) << row << ": its kernels are those that it was measured with";
      fmt::print("overtaken: {} on {}, by {} tokens since {}: to be measured again\n",
                 row.at("rule").get<std::string>(), row.at("device").get<std::string>(), changed, since);
    } else {
      EXPECT_EQ(changed, 0) << row << ": the kernels that it speaks of have changed since " << since;
    }
  }
}

TEST(MeasuredRules, CommentsAndMovesChangeNothing) {
  const std::vector<std::string> folders{"kernels/cuda/product", "kernels/base/thread_pool.cpp"};
  const auto diff_of = [](const char* path, const char* lines) {
    return fmt::format("diff --git a/{} b/{}\n--- a/{}\n+++ b/{}\n@@ -1 +1 @@\n{}", path, path, path, path,
                       lines);
  };
  const char* const file = "kernels/cuda/product/strip.cu";
  EXPECT_EQ(changed_tokens("", folders), 0);
  EXPECT_EQ(changed_tokens(diff_of(file, "-// old words\n+// new ones\n+\n+#include \"x.h\"\n"), folders), 0);
  EXPECT_EQ(changed_tokens(diff_of(file, "-int a = 1;  // one\n+int a = 1;  // an\n"), folders), 0);
  EXPECT_EQ(changed_tokens(diff_of(file, "-f(a, b);\n+f(a,\n+  b);\n"), folders), 0) << "broken elsewhere";
  EXPECT_EQ(
      changed_tokens(diff_of(file, "-f(a, b);\n") + diff_of("kernels/cuda/product/new.cu", "+f(a, b);\n"),
                     folders),
      0)
      << "moved";
  EXPECT_EQ(changed_tokens("diff --git a/kernels/a.cu b/kernels/cuda/product/a.cu\nsimilarity index 100%\n",
                           folders),
            0);
  EXPECT_EQ(changed_tokens(diff_of(file, "-int tile = 64;\n+int tile = 128;\n"), folders), 2);
  EXPECT_EQ(changed_tokens(diff_of("kernels/base/thread_pool.cpp", "+wait();\n"), folders), 4);
  EXPECT_EQ(changed_tokens(diff_of("kernels/cuda/moe/route.cu", "-int tile = 64;\n"), folders), 0)
      << "others'";
  EXPECT_EQ(changed_tokens(diff_of("kernels/cuda/product/README.md", "+words\n"), folders), 0);
}

}  // namespace
}  // namespace minfer
