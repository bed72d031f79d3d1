// Responses that are kept, and those that are dropped.
#include "server/dialects/responses/response_store.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace minfer {
namespace {

TEST(ResponseStoreTest, KeepsUntilErased) {
  ResponseStore store({});
  EXPECT_FALSE(store.find("a"));
  store.put("a", {"body", {}, "[]"});
  ASSERT_TRUE(store.find("a"));
  EXPECT_EQ(store.find("a")->body, "body");
  store.put("a", {"other", {}, "[]"});
  EXPECT_EQ(store.find("a")->body, "other");
  EXPECT_TRUE(store.erase("a"));
  EXPECT_FALSE(store.erase("a"));
  EXPECT_FALSE(store.find("a"));
}

TEST(ResponseStoreTest, DropsTheLeastRecentlyUsed) {
  ResponseStore store({.entries = 2, .bytes = 1000});
  store.put("a", {"1", {}, ""});
  store.put("b", {"2", {}, ""});
  EXPECT_TRUE(store.find("a"));
  store.put("c", {"3", {}, ""});
  EXPECT_FALSE(store.find("b"));
  EXPECT_TRUE(store.find("a"));
  EXPECT_TRUE(store.find("c"));
}

TEST(ResponseStoreTest, BytesAreBounded) {
  ResponseStore store({.entries = 100, .bytes = 30});
  store.put("a", {"0123456789", {}, "01"});  // 13 bytes with its id
  store.put("b", {"0123456789", {}, "01"});
  EXPECT_TRUE(store.find("a"));
  store.put("c", {"0123456789", {}, "01"});
  EXPECT_FALSE(store.find("b"));
  EXPECT_TRUE(store.find("a"));
  store.put("d", {std::string(40, 'x'), {}, ""});
  EXPECT_FALSE(store.find("d")) << "larger than all that may be kept";
  EXPECT_TRUE(store.find("c")) << "and nothing went for it";
  store.put("c", {std::string(29, 'x'), {}, ""});
  EXPECT_FALSE(store.find("a"));
  EXPECT_TRUE(store.find("c"));
}

TEST(ResponseStoreTest, WhatSomebodyReadsStays) {
  ResponseStore store({.entries = 1, .bytes = 100});
  store.put("a", {"1", {}, ""});
  const auto held = store.find("a");
  store.put("b", {"2", {}, ""});
  EXPECT_EQ(held->body, "1");
}

TEST(ResponseStoreTest, AnyThreadMayUseIt) {
  ResponseStore store({.entries = 8, .bytes = 1000});
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&store, thread] {
      for (int i = 0; i < 500; ++i) {
        const std::string id = std::to_string((i * 7 + thread) % 20);
        store.put(id, {id, {}, ""});
        const auto found = store.find(id);
        EXPECT_TRUE(!found || found->body == id);
        if (i % 3 == 0) store.erase(id);
      }
    });
  }
}

}  // namespace
}  // namespace minfer
