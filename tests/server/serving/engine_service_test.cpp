// The engine on its own thread: what others learn of it, and when.
#include "server/serving/engine_service.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace minfer
