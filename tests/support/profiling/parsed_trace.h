#pragma once

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace minfer::test {

/// A trace in Chrome's JSON format, as its readers see it.
class ParsedTrace {
 public:
  using Json = nlohmann::json;
  struct Slice {
    std::string track;  ///< "process/thread"
    std::string name;
    std::string category;
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
    Json args;
  };
  struct Flow {
    int begins = 0, ends = 0;
    std::string from, to;  ///< tracks
    int64_t from_ns = 0, to_ns = 0;
  };

  explicit ParsedTrace(const std::string& text) : json_(Json::parse(text)) {
    std::map<std::pair<int, int>, std::string> threads;
    for (const Json& event : events()) {
      if (event["name"] == "process_name") processes_[event["pid"]] = event["args"]["name"];
      if (event["name"] == "thread_name")
        threads[{event["pid"], event["tid"]}] =
            processes_.at(event["pid"]) + "/" + event["args"]["name"].get<std::string>();
    }
    for (const Json& event : events()) {
      const std::string kind = event["ph"];
      if (kind == "M" || kind == "C") continue;
      const std::string track = threads.at({event["pid"], event["tid"]});
      const int64_t ns = ns_of(event["ts"]);
      if (kind == "X") {
        slices.push_back({track, event["name"], event["cat"], ns, ns + ns_of(event["dur"]), event["args"]});
        continue;
      }
      Flow& flow = flows[event["id"]];
      (kind == "s" ? flow.begins : flow.ends) += 1;
      (kind == "s" ? flow.from : flow.to) = track;
      (kind == "s" ? flow.from_ns : flow.to_ns) = ns;
    }
  }

  const Json& events() const { return json_.at("traceEvents"); }
  const Json& json() const { return json_; }
  std::vector<Slice> on(const std::string& track) const {
    std::vector<Slice> found;
    for (const Slice& slice : slices) {
      if (slice.track == track) found.push_back(slice);
    }
    return found;
  }
  std::set<std::string> tracks() const {
    std::set<std::string> found;
    for (const Slice& slice : slices)
      found.insert(slice.track);
    return found;
  }
  /// The values of a counter, in order. With `process`, only those of that process.
  std::vector<Json> counter(const std::string& name, const std::string& process = {}) const {
    std::vector<Json> found;
    for (const Json& event : events()) {
      if (event["ph"] != "C" || event["name"] != name) continue;
      if (process.empty() || processes_.at(event["pid"]) == process) found.push_back(event["args"]);
    }
    return found;
  }
  /// Fails the test if slices of a track do not ascend and nest, or if a flow lacks one begin followed by one end.
  void expect_sound() const {
    std::map<std::string, std::vector<const Slice*>> stacks;
    std::map<std::string, int64_t> begins;
    for (const Slice& slice : slices) {
      EXPECT_LE(slice.begin_ns, slice.end_ns) << slice.name;
      EXPECT_GE(slice.begin_ns, begins[slice.track]) << slice.track << ": " << slice.name;
      begins[slice.track] = slice.begin_ns;
      std::vector<const Slice*>& stack = stacks[slice.track];
      while (!stack.empty() && stack.back()->end_ns <= slice.begin_ns)
        stack.pop_back();
      if (!stack.empty()) {
        EXPECT_LE(slice.end_ns, stack.back()->end_ns)
            << slice.track << ": " << slice.name << " overlaps " << stack.back()->name;
      }
      stack.push_back(&slice);
    }
    for (const auto& [id, flow] : flows) {
      EXPECT_EQ(flow.begins, 1) << id;
      EXPECT_EQ(flow.ends, 1) << id;
      EXPECT_LE(flow.from_ns, flow.to_ns) << id;
    }
  }

  std::vector<Slice> slices;  ///< in the order of the file
  std::map<int64_t, Flow> flows;

 private:
  static int64_t ns_of(const Json& us) { return std::llround(us.get<double>() * 1e3); }

  Json json_;
  std::map<int, std::string> processes_;  ///< names by number
};

}  // namespace minfer::test
