#include "server/serving/engine/engine_service.h"

#include <exception>
#include <iterator>
#include <new>

#include "server/http/memory_reserve.h"

namespace minfer {
namespace {

/// The interval of checks of an idle engine: nothing else shows that a rank of another process has gone.
constexpr std::chrono::milliseconds kCheckRanksEvery{250};

}  // namespace

EngineService::EngineService(Engine& engine, Callbacks callbacks)
    : engine_(engine), callbacks_(std::move(callbacks)) {
  engine_.set_output_sink([this](std::span<RequestOutput> outputs) { put_outputs(outputs); });
  publish_status();
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

EngineService::~EngineService() {
  thread_.request_stop();
  thread_.join();
  engine_.set_output_sink(nullptr);
}

void EngineService::submit(std::vector<Request> requests) {
  run_between_steps([this, requests = std::move(requests)](Engine& engine) mutable {
    for (Request& request : requests)
      submit_to(engine, request);
  });
}

void EngineService::cancel(std::vector<std::string> ids) {
  run_between_steps([ids = std::move(ids)](Engine& engine) {
    for (const std::string& id : ids)
      engine.cancel(id);
  });
}

void EngineService::run_between_steps(Command task) {
  {
    const std::lock_guard lock(inbox_mutex_);
    inbox_.push_back(std::move(task));
    has_commands_.store(true, std::memory_order_release);
  }
  wake_.notify_one();
}

bool EngineService::stop(std::chrono::milliseconds patience) {
  thread_.request_stop();
  return has_ended_.wait_for(patience) == std::future_status::ready;
}

void EngineService::run(const std::stop_token& stop) {
  use_memory_reserve(true);
  try {
    while (take_commands(stop)) {
      for (Command& command : commands_)
        command(engine_);
      // That there is work, before the step that may never end.
      if (!commands_.empty()) publish_status();
      commands_.clear();
      if (!engine_.has_work()) continue;
      in_step_ = true;
      engine_.step();
      in_step_ = false;
      publish_status();
    }
  } catch (const std::exception& error) {
    {
      const std::lock_guard lock(status_mutex_);
      status_.failed = true;
    }
    callbacks_.on_failure(error.what());
  }
  ended_.set_value();
}

void EngineService::wait_for_command(std::unique_lock<std::mutex>& lock, const std::stop_token& stop) {
  const auto has_come = [this] { return !inbox_.empty(); };
  if (!engine_.options().processes) {
    wake_.wait(lock, stop, has_come);
    return;
  }
  while (!wake_.wait_for(lock, stop, kCheckRanksEvery, has_come) && !stop.stop_requested())
    engine_.check_ranks();
}

/// Waits while there is nothing to do. Returns false if the service ends.
bool EngineService::take_commands(const std::stop_token& stop) {
  if (engine_.has_work() && !has_commands_.load(std::memory_order_acquire)) return !stop.stop_requested();
  std::unique_lock lock(inbox_mutex_);
  if (!engine_.has_work()) wait_for_command(lock, stop);
  std::swap(inbox_, commands_);
  has_commands_.store(false, std::memory_order_relaxed);
  return !stop.stop_requested();
}

void EngineService::submit_to(Engine& engine, Request& request) {
  RequestOutput refusal;
  try {
    const ClientSizedAllocations client_sized;
    return engine.submit(request);
  } catch (const std::bad_alloc&) {
    request.prompt = {};  // what the refusal is told with
    refusal.finish = FinishReason::cancelled;
  } catch (const Error& error) {
    refusal.finish = FinishReason::refused;
    refusal.finish_detail = error.what();
  }
  refusal.id = request.id;
  put_outputs({&refusal, 1});
}

void EngineService::put_outputs(std::span<RequestOutput> outputs) {
  publish_status();  // first: who has got the end of an answer finds it gone from the running ones
  bool was_empty = false;
  {
    const std::lock_guard lock(outbox_mutex_);
    was_empty = outbox_.empty();
    std::ranges::move(outputs, std::back_inserter(outbox_));
  }
  if (was_empty) callbacks_.on_outputs();
}

void EngineService::publish_status() {
  const BlockManager& blocks = engine_.scheduler().blocks();
  const std::lock_guard lock(status_mutex_);
  status_.running = engine_.scheduler().num_running();
  status_.waiting = engine_.scheduler().num_waiting();
  status_.kv_blocks_used = blocks.num_live();
  status_.kv_blocks_total = blocks.num_blocks();
  status_.busy = in_step_ || engine_.has_work();
  status_.last_progress_ns = now_ns();
}

}  // namespace minfer
