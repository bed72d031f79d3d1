// The engine on its own thread: what other threads learn of it, and when.
#include "server/serving/engine/engine_service.h"

#include <map>

#include <gtest/gtest.h>

#include "server/http/memory_reserve.h"
#include "tests/support/allocations.h"
#include "tests/support/server/test_server.h"

namespace minfer {
namespace {

TEST(EngineServiceTest, TheStatusIsRightBeforeOutputsLeave) {
  for (const int32_t steps_ahead : {0, 1}) {
    test::ScriptedServing serving;
    serving.engine.steps_ahead = steps_ahead;
    const std::unique_ptr<Engine> engine = test::make_scripted_engine(serving);
    std::vector<EngineStatus> at_outputs;
    std::atomic<bool> has_ended{false};
    std::unique_ptr<EngineService> service;
    service = std::make_unique<EngineService>(
        *engine, EngineService::Callbacks{.on_outputs =
                                              [&] {
                                                at_outputs.push_back(service->status());
                                                for (const RequestOutput& output : service->take_outputs())
                                                  has_ended = has_ended || output.finish.has_value();
                                              },
                                          .on_failure = nullptr});
    service->submit({test::greedy_request("a", {5, 6, 7}, 2)});
    EXPECT_TRUE(test::wait_until([&] { return has_ended.load(); }));
    service.reset();  // its thread has ended
    ASSERT_EQ(at_outputs.size(), 2u);
    EXPECT_EQ(at_outputs[0].running, 1);
    EXPECT_GT(at_outputs[0].kv_blocks_used, 0);
    EXPECT_EQ(at_outputs[1].running, 0) << "the last output of the only request";
    EXPECT_EQ(at_outputs[1].kv_blocks_used, 0);
  }
}

/// Wherever the memory ends during its admission, that request is cancelled, and the next one is served.
TEST(EngineServiceTest, ARequestWithoutMemoryIsCancelledAlone) {
  if (!test::counts_allocations()) GTEST_SKIP() << "a sanitizer has its own operator new";
  const std::unique_ptr<Engine> engine = test::make_scripted_engine({});
  std::mutex mutex;
  std::map<std::string, FinishReason> ends;
  std::unique_ptr<EngineService> service;
  const auto take = [&] {
    const std::lock_guard lock(mutex);
    for (const RequestOutput& output : service->take_outputs())
      if (output.finish) ends[output.id] = *output.finish;
  };
  service = std::make_unique<EngineService>(
      *engine, EngineService::Callbacks{.on_outputs = take, .on_failure = nullptr});
  const auto end_of = [&](const std::string& id) {
    EXPECT_TRUE(test::wait_until([&] {
      const std::lock_guard lock(mutex);
      return ends.contains(id);
    })) << id;
    const std::lock_guard lock(mutex);
    return ends[id];
  };
  int num_cancelled = 0;
  for (int64_t after = 0; after < 40; ++after) {
    const std::string id = fmt::format("request {}", after);
    const Request request = test::greedy_request(id, {5, 6, 7}, 1);
    service->run_between_steps([&, after](Engine& served) {
      test::refuse_allocation(after);
      const ClientSizedAllocations client_sized;
      try {
        served.submit(request);
      } catch (const std::bad_alloc&) {
        ++num_cancelled;
        test::refuse_allocation(-1);
        served.submit(request);  // the failed ones left nothing behind
      }
      test::refuse_allocation(-1);
    });
    EXPECT_EQ(end_of(id), FinishReason::length);
  }
  EXPECT_GE(num_cancelled, 3);
  service->run_between_steps([](Engine&) { test::refuse_allocation(0); });
  service->submit({test::greedy_request("without", {5, 6, 7}, 1)});
  EXPECT_EQ(end_of("without"), FinishReason::cancelled);
  service->submit({test::greedy_request("with", {5, 6, 7}, 1)});
  EXPECT_EQ(end_of("with"), FinishReason::length);
}

}  // namespace
}  // namespace minfer
