#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "kernels/comm/process_group.h"

namespace minfer::test {

/// Messages between threads that stand for processes.
class Mailboxes {
 public:
  using Message = std::vector<std::byte>;

  void put(int32_t from, int32_t to, int32_t tag, Message message) {
    const std::lock_guard lock(mutex_);
    boxes_[{from, to, tag}].push_back(std::move(message));
  }
  int64_t size_of_next(int32_t from, int32_t to, int32_t tag) {
    const std::lock_guard lock(mutex_);
    const std::deque<Message>& box = boxes_[{from, to, tag}];
    return box.empty() ? -1 : std::ssize(box.front());
  }
  Message take(int32_t from, int32_t to, int32_t tag) {
    const std::lock_guard lock(mutex_);
    std::deque<Message>& box = boxes_[{from, to, tag}];
    Message message = std::move(box.front());
    box.pop_front();
    return message;
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<int32_t, int32_t, int32_t>, std::deque<Message>> boxes_;
};

class MemoryTransport final : public ProcessTransport {
 public:
  MemoryTransport(Rank rank, std::shared_ptr<Mailboxes> boxes) : rank_(rank), boxes_(std::move(boxes)) {}

  Rank rank() const override { return rank_; }
  int32_t begin_send(int32_t to, int32_t tag, const void* bytes, size_t count) override {
    const auto* begin = static_cast<const std::byte*>(bytes);
    boxes_->put(rank_.index, to, tag, {begin, begin + count});
    return add({.is_done = true});
  }
  int32_t begin_receive(int32_t from, int32_t tag, void* bytes, size_t count) override {
    return add({.from = from, .tag = tag, .bytes = bytes, .count = count});
  }
  Progress progress(int32_t transfer) override {
    Open& open = open_[static_cast<size_t>(transfer)];
    if (open.is_done) return Progress::done;
    if (boxes_->size_of_next(open.from, rank_.index, open.tag) < 0) return Progress::waiting;
    const Mailboxes::Message message = boxes_->take(open.from, rank_.index, open.tag);
    if (message.size() != open.count) return Progress::failed;
    if (open.count > 0) std::memcpy(open.bytes, message.data(), open.count);
    open.is_done = true;
    return Progress::done;
  }
  int64_t size_of_next(int32_t from, int32_t tag) override {
    return boxes_->size_of_next(from, rank_.index, tag);
  }
  void finish() override {}
  std::string error() const override { return "a message of another size"; }

 private:
  struct Open {
    int32_t from = 0;
    int32_t tag = 0;
    void* bytes = nullptr;
    size_t count = 0;
    bool is_done = false;
  };

  int32_t add(Open open) {
    open_.push_back(open);
    return static_cast<int32_t>(open_.size()) - 1;
  }

  Rank rank_;
  std::shared_ptr<Mailboxes> boxes_;
  std::deque<Open> open_;
};

/// Runs `body` on `count` threads, each with its own group of processes, and waits for all.
inline void run_as_processes(int32_t count, const std::function<void(std::shared_ptr<ProcessGroup>)>& body) {
  const auto boxes = std::make_shared<Mailboxes>();
  std::vector<std::jthread> threads;
  for (int32_t index = 0; index < count; ++index)
    threads.emplace_back([&, index] {
      body(std::make_shared<ProcessGroup>(
          std::make_unique<MemoryTransport>(Rank{index, count}, boxes),
          ProcessInfo{.host = index < 2 ? "a" : "b", .process_id = 100 + index, .cores = "0 1"}));
    });
}

}  // namespace minfer::test
