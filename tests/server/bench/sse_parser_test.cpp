#include <fmt/format.h>
#include <gmock/gmock.h>

#include "server/bench/completion_stream.h"
#include "tests/support/models/text_splits.h"

namespace minfer {
namespace {

using Events = std::vector<std::string>;
using testing::ElementsAre;
using testing::IsEmpty;

Events parse(const std::vector<std::string>& pieces) {
  SseParser parser;
  Events events;
  for (const std::string& piece : pieces)
    parser.feed(piece, [&](std::string_view data) { events.emplace_back(data); });
  return events;
}

/// The content of the stream, which must be the same for all ways to cut it.
Events parse_all_splits(const std::string& stream) {
  const Events whole = parse({stream});
  for (uint32_t split = 0; split < test::num_splits(stream.size()); ++split)
    EXPECT_EQ(parse(test::split_text(stream, split)), whole) << split;
  return whole;
}

TEST(SseParser, EventsAreTheSameForAllWaysToCutTheStream) {
  EXPECT_THAT(parse_all_splits("data: a\n\ndata:b\n\n"), ElementsAre("a", "b"));
  EXPECT_THAT(parse_all_splits("data: a\r\n\r\ndata:b\r\n"), ElementsAre("a"));
  EXPECT_THAT(parse_all_splits("data:a\r\rdata:b\r\n\r\n"), ElementsAre("a", "b"));
  EXPECT_THAT(parse_all_splits("data:a\ndata: b\n\n"), ElementsAre("a\nb"));
  EXPECT_THAT(parse_all_splits(":p\n\ndata: a\n:x\n\n"), ElementsAre("a"));
  EXPECT_THAT(parse_all_splits("id:1\ndata:a\n\nid\n\n"), ElementsAre("a"));
  EXPECT_THAT(parse_all_splits("data\n\ndata:\n\nx\n\n"), ElementsAre("", ""));
}

TEST(SseParser, LongStreamsAreTheSameHoweverManyBytesComeAtOnce) {
  std::string stream;
  Events expected;
  for (int i = 0; i < 50; ++i) {
    const std::string end = i % 3 == 0 ? "\n" : i % 3 == 1 ? "\r\n" : "\r";
    const std::string data = fmt::format("{{\"n\":{}}}", i);
    stream += fmt::format(": comment{0}event: message{0}data: {1}{0}{0}", end, data);
    expected.push_back(data);
  }
  for (size_t size = 1; size < 200; ++size) {
    std::vector<std::string> pieces;
    for (size_t at = 0; at < stream.size(); at += size)
      pieces.push_back(stream.substr(at, size));
    EXPECT_EQ(parse(pieces), expected) << size;
  }
}

TEST(SseParser, OnlyOneSpaceIsLeftOut) {
  EXPECT_THAT(parse({"data:  a \n\n"}), ElementsAre(" a "));
}

TEST(SseParser, WhatNoEmptyLineEndsIsNoEvent) {
  EXPECT_THAT(parse({"data: a\n"}), IsEmpty());
  EXPECT_THAT(parse({"data: a"}), IsEmpty());
  EXPECT_THAT(parse({""}), IsEmpty());
}

}  // namespace
}  // namespace minfer
