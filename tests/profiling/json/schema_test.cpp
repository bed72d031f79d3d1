#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "profiling/json/json_writer.h"
#include "tests/support/engine/sample_profile.h"
#include "tests/support/paths.h"

namespace minfer {
namespace {

using Json = nlohmann::json;

// The keywords of JSON Schema that step.schema.json uses. Any other is an error, so that none is passed over.
class Validator {
 public:
  explicit Validator(Json root) : root_(std::move(root)) {}

  /// What is wrong with `value`; empty: nothing.
  std::string check(const Json& value) const { return check(value, root_, "$"); }

 private:
  std::string check(const Json& value, const Json& schema, const std::string& path) const {
    if (schema.contains("type") && !has_type(value, schema["type"])) {
      return path + ": " + value.dump() + " is no " + schema["type"].get<std::string>();
    }
    for (const auto& [keyword, rule] : schema.items()) {
      const std::string problem = apply(keyword, rule, value, schema, path);
      if (!problem.empty()) return problem;
    }
    return {};
  }

  std::string apply(const std::string& keyword, const Json& rule, const Json& value, const Json& schema,
                    const std::string& path) const {
    if (keyword == "$schema" || keyword == "title" || keyword == "description" || keyword == "$defs")
      return {};
    if (keyword == "additionalProperties") return additional(rule, value, schema, path);
    if (keyword == "$ref")
      return check(value, root_.at(Json::json_pointer(rule.get<std::string>().substr(1))), path);
    if (keyword == "oneOf") return one_of(rule, value, path);
    if (keyword == "properties") return properties(rule, value, path);
    if (keyword == "required") return required(rule, value, path);
    if (keyword == "items") return items(rule, value, path);
    if (keyword == "type") return {};  // checked first: the other keywords count on it
    bool holds = false;
    if (keyword == "const") {
      holds = value == rule;
    } else if (keyword == "enum") {
      holds = std::find(rule.begin(), rule.end(), value) != rule.end();
    } else if (keyword == "minimum") {
      holds = value.get<double>() >= rule.get<double>();
    } else if (keyword == "maximum") {
      holds = value.get<double>() <= rule.get<double>();
    } else if (keyword == "minItems") {
      holds = value.size() >= rule.get<size_t>();
    } else {
      return "the schema uses " + keyword + ", which this test does not know";
    }
    return holds ? "" : path + ": " + value.dump() + " breaks " + keyword + " " + rule.dump();
  }

  static bool has_type(const Json& value, const std::string& type) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "integer") return value.is_number_integer();
    return type == "number" && value.is_number();
  }

  std::string one_of(const Json& rules, const Json& value, const std::string& path) const {
    std::string problems;
    int matches = 0;
    for (const Json& rule : rules) {
      const std::string problem = check(value, rule, path);
      if (problem.empty()) ++matches;
      problems += problem + "; ";
    }
    return matches == 1 ? "" : path + ": " + std::to_string(matches) + " of oneOf hold: " + problems;
  }

  std::string properties(const Json& rules, const Json& value, const std::string& path) const {
    for (const auto& [name, rule] : rules.items()) {
      if (!value.contains(name)) continue;
      const std::string problem = check(value[name], rule, path + "." + name);
      if (!problem.empty()) return problem;
    }
    return {};
  }

  std::string additional(const Json& rule, const Json& value, const Json& schema,
                         const std::string& path) const {
    for (const auto& [name, member] : value.items()) {
      if (schema.contains("properties") && schema["properties"].contains(name)) continue;
      if (rule == false) return path + ": has the field " + name + ", which the schema lacks";
      const std::string problem = check(member, rule, path + "." + name);
      if (!problem.empty()) return problem;
    }
    return {};
  }

  static std::string required(const Json& names, const Json& value, const std::string& path) {
    for (const Json& name : names) {
      if (!value.contains(name.get<std::string>())) return path + ": lacks " + name.dump();
    }
    return {};
  }

  std::string items(const Json& rule, const Json& value, const std::string& path) const {
    for (size_t i = 0; i < value.size(); ++i) {
      const std::string problem = check(value[i], rule, path + "[" + std::to_string(i) + "]");
      if (!problem.empty()) return problem;
    }
    return {};
  }

  Json root_;
};

std::filesystem::path source(const std::string& path) {
  return std::filesystem::path(source_path("")) / path;
}

Json load_schema() {
  return Json::parse(std::ifstream(source("profiling/json/step.schema.json")));
}

std::string sample_text(ProfileDetail detail) {
  std::string text;
  append_header_line(text, test::sample_header(detail));
  for (const StepSummary& step : test::sample_steps(6, detail))
    append_step_line(text, step);
  return text;
}

Json sample_line(size_t line) {
  std::istringstream lines(sample_text(ProfileDetail::layer));
  std::string text;
  for (size_t i = 0; i <= line; ++i)
    std::getline(lines, text);
  return Json::parse(text);
}

TEST(StepSchema, EveryWrittenLineIsValid) {
  const Validator validator(load_schema());
  for (const ProfileDetail detail : {ProfileDetail::op, ProfileDetail::layer}) {
    std::istringstream lines(sample_text(detail));
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count)
      EXPECT_EQ(validator.check(Json::parse(line)), "") << line;
    EXPECT_EQ(count, 7);
  }
}

// The control: what is not as the schema says does not pass.
TEST(StepSchema, WrongLinesAreNot) {
  const Validator validator(load_schema());
  const auto broken = [&](size_t line, const char* pointer, const Json& value) {
    Json json = sample_line(line);
    json[Json::json_pointer(pointer)] = value;
    return !validator.check(json).empty();
  };
  EXPECT_TRUE(broken(0, "/header/tier", 1));
  EXPECT_TRUE(broken(0, "/header/ops/0/kind", "conv"));
  EXPECT_TRUE(broken(0, "/header/options/threads", 2));
  EXPECT_TRUE(broken(1, "/schema", "minfer.step/2"));
  EXPECT_TRUE(broken(1, "/step", -1));
  EXPECT_TRUE(broken(1, "/wall_us", "long"));
  EXPECT_TRUE(broken(1, "/attributed", 1.5));
  EXPECT_TRUE(broken(1, "/ops/0/bound", "network"));
  EXPECT_TRUE(broken(1, "/ops/0/calls", 0));
  EXPECT_TRUE(broken(1, "/host_us/nap", 1.0));
  EXPECT_TRUE(broken(1, "/layers", Json::array()));
  EXPECT_TRUE(broken(1, "/header", Json::object()));
  Json without_step = sample_line(1);
  without_step.erase("step");
  EXPECT_NE(validator.check(without_step), "");
}

TEST(StepSchema, PythonsValidatorAgrees) {
  const auto path =
      std::filesystem::temp_directory_path() / ("minfer_schema_" + std::to_string(getpid()) + ".jsonl");
  std::ofstream(path) << sample_text(ProfileDetail::layer);
  const std::string command = "python3 '" + source("tests/profiling/json/check_schema.py").string() + "' '" +
                              source("profiling/json/step.schema.json").string() + "' '" + path.string() +
                              "'";
  const int status = std::system(command.c_str());
  std::filesystem::remove(path);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127) GTEST_SKIP() << "no python3 with jsonschema";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace minfer
