#include "server/kv_events/kv_event_publisher.h"

#include <array>
#include <chrono>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

#include "kernels/base/error.h"

namespace minfer {
namespace {

constexpr size_t kMaxSpareBatches = 16;
constexpr uint64_t kEndOfReplay = ~uint64_t{0};  // -1

/// vLLM's rule: servers bind addresses that stand for this machine, and connect to those of another.
bool is_own_address(const std::string& endpoint) {
  return endpoint.find('*') != std::string::npos || endpoint.find("::") != std::string::npos ||
         endpoint.starts_with("ipc://") || endpoint.starts_with("inproc://");
}

std::array<char, 8> big_endian(uint64_t value) {
  std::array<char, 8> bytes;
  for (size_t i = 0; i < 8; ++i)
    bytes[i] = static_cast<char>(value >> (56 - 8 * i));
  return bytes;
}

uint64_t from_big_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char byte : bytes)
    value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

std::string_view view(const std::array<char, 8>& bytes) {
  return {bytes.data(), bytes.size()};
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

KvEventPublisher::KvEventPublisher(KvEventOptions options)
    : options_(std::move(options)),
      is_bound_(is_own_address(options_.endpoint)),
      socket_(context_, ZmqSocket::Type::publish, options_.high_water_mark),
      wake_descriptor_(-1) {
  if (is_bound_) {
    socket_.bind(options_.endpoint, "--kv-events-endpoint");
    options_.endpoint = socket_.bound_endpoint();
  } else {
    socket_.connect(options_.endpoint, "--kv-events-endpoint");
  }
  if (!options_.replay_endpoint.empty()) {
    // Room for the longest answer and some short ones: a message that finds none is lost.
    replay_.emplace(context_, ZmqSocket::Type::router, static_cast<int>(options_.max_replay_batches) + 1000);
    replay_->bind(options_.replay_endpoint, "--kv-events-replay-endpoint");
    options_.replay_endpoint = replay_->bound_endpoint();
  }
  wake_descriptor_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_descriptor_ < 0) fail("--kv-events-endpoint: no descriptor to be had for its thread");
  thread_ = std::jthread([this] { run(); });
}

KvEventPublisher::~KvEventPublisher() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  thread_.join();
  close(wake_descriptor_);
}

bool KvEventPublisher::wants_all() {
  const std::lock_guard lock(mutex_);
  return is_behind_ && queue_.empty();
}

void KvEventPublisher::take(KvEventBatch& batch) {
  const size_t bytes = batch.size_bytes();
  bool was_empty = false;
  {
    const std::lock_guard lock(mutex_);
    const uint64_t number = next_number_++;
    const bool is_whole = !batch.empty() && batch.events.front().kind == KvEventBatch::Kind::cleared;
    // An empty queue takes a batch of any size, so that the whole cache can always be sent.
    if ((is_behind_ && !is_whole) || (!queue_.empty() && queue_bytes_ + bytes > options_.max_queue_bytes)) {
      is_behind_ = true;
      ++counts_.dropped;
      return;
    }
    is_behind_ = false;
    was_empty = queue_.empty();
    queue_bytes_ += bytes;
    Queued& queued = queue_.emplace_back();
    queued.number = number;
    queued.time_s = seconds_since_1970();
    if (!spare_.empty()) {
      queued.batch = std::move(spare_.back());
      spare_.pop_back();
    }
    std::swap(queued.batch, batch);
    ++counts_.queued;
  }
  if (was_empty) wake();
}

KvEventCounts KvEventPublisher::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void KvEventPublisher::wake() {
  [[maybe_unused]] const int rc = eventfd_write(wake_descriptor_, 1);
}

void KvEventPublisher::run() {
  while (true) {
    ZmqSocket::wait_readable(replay_ ? &*replay_ : nullptr, wake_descriptor_);
    eventfd_t wakes = 0;
    eventfd_read(wake_descriptor_, &wakes);
    while (std::optional<Queued> next = next_queued())
      publish(*next);
    if (replay_) answer_replay();
    const std::lock_guard lock(mutex_);
    if (stopping_ && queue_.empty()) return;
  }
}

std::optional<KvEventPublisher::Queued> KvEventPublisher::next_queued() {
  const std::lock_guard lock(mutex_);
  if (queue_.empty()) return std::nullopt;
  std::optional<Queued> next = std::move(queue_.front());
  queue_.pop_front();
  queue_bytes_ -= next->batch.size_bytes();
  return next;
}

void KvEventPublisher::publish(Queued& queued) {
  std::string payload = encode_kv_events(queued.batch, queued.time_s, options_.format);
  const std::array<char, 8> number = big_endian(queued.number);
  const std::array<std::string_view, 3> frames{options_.topic, view(number), payload};
  const bool is_sent = socket_.send(frames);
  if (replay_) keep(queued.number, std::move(payload));
  queued.batch.clear();
  const std::lock_guard lock(mutex_);
  --counts_.queued;
  ++(is_sent ? counts_.published : counts_.dropped);
  if (spare_.size() < kMaxSpareBatches) spare_.push_back(std::move(queued.batch));
}

void KvEventPublisher::keep(uint64_t number, std::string payload) {
  kept_bytes_ += payload.size();
  kept_.push_back({number, std::move(payload)});
  while (kept_.size() > options_.max_replay_batches || kept_bytes_ > options_.max_replay_bytes) {
    kept_bytes_ -= kept_.front().payload.size();
    kept_.pop_front();
  }
}

/// Requests are [client, nothing, first number]; others are ignored. Answers are [client, nothing, number, batch].
void KvEventPublisher::answer_replay() {
  const std::optional<std::vector<std::string>> request = replay_->receive();
  if (!request || request->size() != 3 || request->back().size() != sizeof(uint64_t)) return;
  const uint64_t first = from_big_endian(request->back());
  const auto answer = [&](uint64_t kept_number, std::string_view payload) {
    const std::array<char, 8> number = big_endian(kept_number);
    const std::array<std::string_view, 4> frames{request->front(), std::string_view(), view(number), payload};
    replay_->send(frames);
  };
  for (const Replayable& each : kept_) {
    if (each.number >= first) answer(each.number, each.payload);
  }
  answer(kEndOfReplay, {});
}

}  // namespace minfer
