// Lines of requests, written, checked against their schema and read back.

#include <algorithm>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "profiling/json/json_reader.h"
#include "profiling/json/lines.h"
#include "profiling/json/profile_writer.h"
#include "tests/support/json_schema.h"
#include "tests/support/paths.h"
#include "tests/support/profiling/sample_profile.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/wait.h"

namespace minfer {
namespace {

EndedRequest sample_request() {
  EndedRequest request;
  request.id = "cmpl-\"1\"";
  request.finish = "length";
  request.arrival_ns = 1'000;
  request.first_scheduled_ns = 3'000;
  request.first_token_ns = 7'000;
  request.end_ns = 15'500;
  request.prompt_tokens = 40;
  request.cached_tokens = 16;
  request.recomputed_tokens = 5;
  request.output_tokens = 9;
  request.preemptions = 1;
  request.priority = -7;
  request.steps = {.first = 4, .last = 13, .prefill = 2, .decode = 8};
  request.has_grammar = true;
  request.grammar_compile_ns = 12'000;
  request.mask_ns = 3'500;
  request.forced_tokens = 6;
  request.drafts = 3;
  request.draft_tokens = 11;
  request.accepted_tokens = 7;
  request.stream_interval = 4;
  request.client_wait_ns = 2'500;
  request.client_wait_after_ns = 71'000;
  request.num_prefixes = 2;
  request.prefix_hashes = {4'000'000'000u, 7u};
  return request;
}

/// A refused request: no step, no times.
EndedRequest refused_request() {
  EndedRequest request;
  request.id = "r";
  request.finish = "refused";
  request.arrival_ns = 1'000;
  request.end_ns = 1'600;
  return request;
}

std::string request_line(const EndedRequest& request) {
  std::string line;
  append_line(line, request);
  return line;
}

ProfileFile read_request(const std::string& line) {
  std::string text;
  append_header_line(text, test::sample_header());
  std::istringstream stream(text + line);
  return read_profile(stream, "run.jsonl");
}

TEST(RequestLines, ReadBackAsWritten) {
  const ProfileFile file = read_request(request_line(sample_request()) + request_line(refused_request()));
  ASSERT_EQ(file.requests.size(), 2u);
  EXPECT_EQ(request_line(file.requests[0]), request_line(sample_request()));
  EXPECT_EQ(request_line(file.requests[1]), request_line(refused_request()));
  EXPECT_TRUE(file.requests[0].has_grammar);
  EXPECT_EQ(file.requests[0].grammar_compile_ns, 12'000);
  EXPECT_EQ(file.requests[0].mask_ns, 3'500);
  EXPECT_EQ(file.requests[0].forced_tokens, 6);
  EXPECT_EQ(file.requests[0].drafts, 3);
  EXPECT_EQ(file.requests[0].draft_tokens, 11);
  EXPECT_EQ(file.requests[0].accepted_tokens, 7);
  EXPECT_EQ(file.requests[0].priority, -7);
  EXPECT_EQ(file.requests[1].priority, 0);
  EXPECT_EQ(request_line(file.requests[1]).find("priority"), std::string::npos) << "as in older files";
  EXPECT_FALSE(file.requests[1].has_grammar);
  EXPECT_EQ(file.requests[0].queue_ns(), 2'000);
  EXPECT_EQ(file.requests[0].prefill_ns(), 4'000);
  EXPECT_EQ(file.requests[0].decode_ns(), 8'500);
  EXPECT_EQ(file.requests[1].queue_ns(), 600);
  EXPECT_EQ(file.requests[1].steps.first, -1);
  EXPECT_EQ(file.requests[1].client_wait_ns, -1);
}

TEST(RequestLines, AreAsTheSchemaSays) {
  const test::JsonSchema schema(
      nlohmann::json::parse(std::ifstream(source_path("profiling/json/request.schema.json"))));
  for (const EndedRequest& request : {sample_request(), refused_request()})
    EXPECT_EQ(schema.check(nlohmann::json::parse(request_line(request))), "");
  const auto broken = [&](const char* pointer, const nlohmann::json& value) {
    nlohmann::json json = nlohmann::json::parse(request_line(sample_request()));
    json[nlohmann::json::json_pointer(pointer)] = value;
    return !schema.check(json).empty();
  };
  EXPECT_TRUE(broken("/finish", "bored"));
  EXPECT_TRUE(broken("/first_token_ns", 0));
  EXPECT_TRUE(broken("/steps/first", -1));
  EXPECT_TRUE(broken("/queue_us", -1.0));
  EXPECT_TRUE(broken("/priority", 0.5));
  EXPECT_TRUE(broken("/grammar/mask_us", -1.0));
  EXPECT_TRUE(broken("/mood", "good"));
}

TEST(RequestLines, WrongOnesAreRefusedByName) {
  nlohmann::json json = nlohmann::json::parse(request_line(sample_request()));
  json["steps"]["prefill"] = "two";
  try {
    read_request(json.dump() + "\n");
    FAIL() << "a text is no count";
  } catch (const FileError& error) {
    EXPECT_NE(std::string(error.what()).find("run.jsonl:2: steps.prefill"), std::string::npos)
        << error.what();
  }
}

TEST(RequestLines, TheWriterKeepsThoseOfItsStepsAndCountsWhatItLost) {
  const test::TemporaryDirectory folder;
  const std::filesystem::path path = folder.path() / "run.jsonl";
  ProfileWriter writer(path, test::sample_header(), {.first_step = 10, .last_step = 20});
  EndedRequest request = sample_request();
  writer.consume_request(request);  // steps 4 to 13
  request.steps = {.first = 2, .last = 9};
  writer.consume_request(request);
  writer.consume_request(refused_request());
  EXPECT_EQ(writer.close().dropped_lines, 0u);
  EXPECT_EQ(read_profile(path).requests.size(), 2u);

  ProfileWriter full("/dev/full", test::sample_header());
  full.consume_request(request);
  EXPECT_EQ(full.close().dropped_lines, 2u) << "the header and a request";
}

/// The number of whole request lines in the file so far.
size_t num_request_lines(const std::filesystem::path& path) {
  std::ifstream file(path);
  size_t count = 0;
  for (std::string line; std::getline(file, line) && !file.eof();)
    count += line.starts_with(R"({"schema":"minfer.request/1")") ? 1 : 0;
  return count;
}

TEST(RequestLines, AreHeldBackUntilTheClientHasTakenTheAnswer) {
  const test::TemporaryDirectory folder;
  const std::filesystem::path path = folder.path() / "run.jsonl";
  const auto ended = [](const std::string& id) {
    EndedRequest request = sample_request();
    request.id = id;
    request.client_wait_ns = 1'000;
    request.client_wait_after_ns = -1;
    return request;
  };
  const auto slow = std::make_shared<ClientWait>(), never = std::make_shared<ClientWait>();
  for (const auto& client : {slow, never}) {
    client->begin(1);
    client->end(1'001);
    client->begin(now_ns());
  }
  ProfileWriter writer(path, test::sample_header());
  for (const auto& [id, client] : {std::pair{"slow", slow}, std::pair{"never", never}}) {
    EndedRequest request = ended(id);
    request.client = client;
    writer.consume_request(request);
  }
  writer.consume_request(ended("none"));  // known at once
  const auto written = [&] { return read_profile(path).requests; };
  ASSERT_TRUE(test::wait_until([&] { return num_request_lines(path) == 1; }));
  EXPECT_EQ(written()[0].id, "none");
  EXPECT_EQ(written()[0].client_wait_after_ns, -1);
  slow->finish(now_ns());
  const int64_t waited_ns = slow->until(0) - 1'000;
  ASSERT_TRUE(test::wait_until([&] { return num_request_lines(path) == 2; }));
  EXPECT_EQ(written()[1].id, "slow");
  EXPECT_EQ(written()[1].client_wait_after_ns, waited_ns);
  EXPECT_EQ(writer.close().dropped_lines, 0u);
  ASSERT_EQ(written().size(), 3u) << "one that never reads is not lost";
  EXPECT_EQ(written()[2].id, "never");
  EXPECT_GE(written()[2].client_wait_after_ns, waited_ns) << "what is known of it";
}

TEST(RequestLines, NoMoreAreHeldBackThanAreQueued) {
  const test::TemporaryDirectory folder;
  const std::filesystem::path path = folder.path() / "run.jsonl";
  ProfileWriter writer(path, test::sample_header(), {.queued_requests = 4});
  const auto client = std::make_shared<ClientWait>();
  client->begin(now_ns());
  size_t lines = 0;
  for (int number = 1; number <= 12; ++number) {
    EndedRequest held = sample_request(), known = sample_request();
    held.id = "held " + std::to_string(number);
    held.client = client;
    writer.consume_request(held);
    writer.consume_request(known);
    lines += number > 4 ? 2 : 1;  // one by one, so that none finds the queue full
    ASSERT_TRUE(test::wait_until([&] { return num_request_lines(path) == lines; })) << number;
  }
  const std::vector<EndedRequest> requests = read_profile(path).requests;
  EXPECT_EQ(
      std::ranges::count_if(requests, [](const EndedRequest& each) { return each.id.starts_with("held"); }),
      8);
  EXPECT_EQ(writer.close().dropped_lines, 0u);
  EXPECT_EQ(read_profile(path).requests.size(), 24u);
  EXPECT_EQ(read_profile(path).requests.back().id, "held 12") << "the oldest were let go first";
}

}  // namespace
}  // namespace minfer
