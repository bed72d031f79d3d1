// Numbers at the limits of their types, in every place of a profile: either reading refuses them by name, or no reader of profiles is
// harmed. The undefined-behaviour sanitizer checks the readers' arithmetic.
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <span>
#include <sstream>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "profiling/json/lines.h"
#include "tests/support/paths.h"
#include "tests/support/profiling/every_reader.h"
#include "tests/support/profiling/whole_profile.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kLimits{"0",
                                       "-1",
                                       "1e-300",
                                       "1e-9",
                                       "1e15",
                                       "1e308",
                                       "268435456",
                                       "2147483647",
                                       "1000000000000",
                                       "100000000000000",
                                       "1000000000000000000",
                                       "4000000000000000000",
                                       "9223372036854775807"};

struct Number {
  size_t begin, size;
};

/// The numbers of a profile by the kind of line and the name of their field; also those that are texts, as in options.
std::map<std::string, std::vector<Number>> numbers_in(const std::string& text) {
  std::map<std::string, std::vector<Number>> found;
  static const std::regex number(
      R"re("([a-z0-9_ ]+)": ?"?(-?[0-9][-+.0-9eE]*)"?|[\[,] ?(-?[0-9][-+.0-9eE]*)|"([a-z_]+)": ?\[)re");
  static const std::regex kind(R"re("schema": ?"minfer\.([a-z]+))re");
  size_t line_begin = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line); line_begin += line.size() + 1) {
    std::smatch match;
    std::regex_search(line, match, kind);
    const std::string of = match.str(1) + (line.find("\"header\"") != std::string::npos ? " header." : ".");
    std::string list;
    for (std::sregex_iterator each(line.begin(), line.end(), number), end; each != end; ++each) {
      if ((*each)[4].matched) list = each->str(4);
      const int group = (*each)[2].matched ? 2 : (*each)[3].matched ? 3 : 0;
      if (group == 0) continue;
      found[of + (group == 2 ? each->str(1) : list)].push_back(
          {line_begin + static_cast<size_t>(each->position(group)),
           static_cast<size_t>(each->length(group))});
    }
  }
  return found;
}

std::string text_of_file(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// The profile with a line of every kind, and the fuzzer's initial inputs.
std::vector<std::string> examples() {
  const test::TemporaryDirectory directory;
  LaunchTable launches;
  {
    ProfileWriter writer(directory.path() / "run.jsonl", test::whole_profile_header(launches));
    test::write_whole_profile(writer, 2);
    writer.close();
  }
  std::vector<std::string> texts{text_of_file(directory.path() / "run.jsonl")};
  append_line(texts.front(), HostSample{.begin_ns = 1, .end_ns = 4'000'000'000'000'000'000, .threads = 2});
  DeviceSample reading{
      .begin_ns = 1, .end_ns = 4'000'000'000'000'000'000, .sm_mhz = 990, .most_sm_mhz = 1'980};
  reading.clock_reasons = clock_reason::heat;
  reading.other_processes = 1;
  append_line(texts.front(), reading);
  for (const char* name : {"cpu.jsonl", "traced.jsonl"})
    texts.push_back(text_of_file(source_path("tests/fuzz/corpus/profile/") + name));
  return texts;
}

/// The text with the numbers at these places, in ascending order, replaced.
std::string changed(std::string text, std::span<const Number> places, const std::string& number) {
  for (size_t i = places.size(); i-- > 0;)
    text.replace(places[i].begin, places[i].size, number);
  return text;
}

// One number of a kind; at the largest value all of the kind, so that their sums are large too.
TEST(ProfileLimits, NoNumberHarmsAReader) {
  std::set<std::string> known;
  for (const std::string& text : examples()) {
    ASSERT_THAT(test::read_everywhere(text), Not(HasSubstr("run.jsonl:"))) << "as it is";
    for (const auto& [name, places] : numbers_in(text)) {
      if (!known.insert(name).second) continue;
      SCOPED_TRACE(name);
      for (const std::string& limit : kLimits) {
        test::read_everywhere(changed(text, std::span(places).first(1), limit));
      }
      for (const std::string& limit : {kLimits.front(), std::string("1e15"), kLimits.back()})
        if (places.size() > 1) test::read_everywhere(changed(text, places, limit));
    }
  }
  EXPECT_GT(known.size(), 100u);
}

TEST(ProfileLimits, AreRefusedWithLineAndField) {
  const std::string text = examples().front();
  const auto error_of = [&](const std::string& field, const std::string& number) {
    const size_t begin = text.find("\"" + field + "\":") + field.size() + 3;
    const size_t end = text.find_first_not_of("-+.0123456789eE", begin);
    const Number place{begin, end - begin};
    return test::read_everywhere(changed(text, {&place, 1}, number));
  };
  EXPECT_THAT(error_of("wall_us", "1e308"),
              ContainsRegex(
                  "run.jsonl:[0-9]+: wall_us: expected a number that is 0, or from 1e-9 to 1e15, found 1e"));
  EXPECT_THAT(error_of("wall_us", "1e-300"), ContainsRegex("run.jsonl:[0-9]+: wall_us: expected"));
  EXPECT_THAT(error_of("start_ns", "9223372036854775807"),
              ContainsRegex(
                  "start_ns: expected an integer from 0 to 4000000000000000000, found 9223372036854775807"));
  EXPECT_THAT(error_of("layer", "2147483647"),
              ContainsRegex("layer: expected an integer from -1 to 268435456"));
  EXPECT_THAT(error_of("decode_tokens", "2147483647"),
              ContainsRegex("decode_tokens: expected an integer from 0"));
  EXPECT_THAT(error_of("flops", "4611686018427387904"), ContainsRegex("flops: expected an integer from 0"));
}

}  // namespace
}  // namespace minfer
