#include "server/kv_events/kv_event_publisher.h"

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <span>
#include <utility>

#include <endian.h>
#include <nlohmann/json.hpp>
#include <unistd.h>
#include <zmq_addon.hpp>

#include "kernels/base/error.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxSpareBatches = 16;
constexpr uint64_t kEndOfReplay = ~uint64_t{0};  // -1

/// vLLM's rule: servers bind addresses that stand for this machine, and connect to those of another.
bool is_own_address(const std::string& endpoint) {
  return endpoint.find('*') != std::string::npos || endpoint.find("::") != std::string::npos ||
         endpoint.starts_with("ipc://") || endpoint.starts_with("inproc://");
}

/// ZeroMQ takes 70000 for port 4464.
void check_port(std::string_view option, const std::string& endpoint) {
  if (!endpoint.starts_with("tcp://")) return;
  const std::string_view port = std::string_view(endpoint).substr(endpoint.rfind(':') + 1);
  uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (port == "*" || (error == std::errc() && end == port.data() + port.size() && number > 0)) return;
  fail("{}: \"{}\" has no port from 1 to 65535, or *", option, endpoint);
}

/// Has the socket listen at the endpoint, or connect to it. Returns the address, with the port that "*" stood for. `option` is where the
/// endpoint comes from. `high_water_mark`: messages that wait for one peer; further ones are lost for it.
std::string attach(zmq::socket_t& socket, std::string_view option, const std::string& endpoint, bool binds,
                   int high_water_mark) {
  constexpr int64_t kLongestMessage = 1024;  // far more than a request for a replay has
  check_port(option, endpoint);
  try {
    socket.set(zmq::sockopt::sndhwm, high_water_mark);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::maxmsgsize, kLongestMessage);
    socket.set(zmq::sockopt::ipv6, endpoint.find('[') != std::string::npos);
    binds ? socket.bind(endpoint) : socket.connect(endpoint);
  } catch (const zmq::error_t& error) {
    fail("{}: cannot {} {}: {}", option, binds ? "listen at" : "connect to", endpoint, error.what());
  }
  return binds ? socket.get(zmq::sockopt::last_endpoint) : endpoint;
}

/// Sends a message without waiting. False: it was not sent.
bool send(zmq::socket_t& socket, std::initializer_list<std::string_view> frames) try {
  std::vector<zmq::const_buffer> buffers;
  for (const std::string_view frame : frames)
    buffers.push_back(zmq::buffer(frame));
  return zmq::send_multipart(socket, buffers, zmq::send_flags::dontwait).has_value();
} catch (const zmq::error_t&) {
  return false;
}

/// Waits until an item can be read. A signal may end the wait, which is no error.
void wait(std::vector<zmq::pollitem_t>& items) try { zmq::poll(items); } catch (const zmq::error_t& error) {
  if (error.num() != EINTR) throw;
}

/// The frames of the next message; empty if none is there.
std::vector<zmq::message_t> receive(zmq::socket_t& socket) try {
  std::vector<zmq::message_t> frames;
  if (!zmq::recv_multipart(socket, std::back_inserter(frames), zmq::recv_flags::dontwait)) frames.clear();
  return frames;
} catch (const zmq::error_t&) {
  return {};
}

/// A number as eight bytes, big-endian.
std::string big_endian(uint64_t value) {
  value = htobe64(value);
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// vLLM's name of the tier from which requests compute; others mean a second tier, from which blocks are fetched. So a CPU has it too.
constexpr const char* kMedium = "GPU";

/// The fields of the next event, by name and in order, out of the hashes and tokens that are left of the batch.
Json next_event(const KvEventBatch::Event& event, int32_t block_size, std::span<const uint64_t>& hashes,
                std::span<const TokenId>& tokens) {
  if (event.kind == KvEventBatch::Kind::cleared) return {{"type", "AllBlocksCleared"}};
  const auto num_blocks = static_cast<size_t>(event.num_blocks);
  const auto of_event = hashes.first(num_blocks);
  hashes = hashes.subspan(num_blocks);
  if (event.kind == KvEventBatch::Kind::removed)
    return {{"type", "BlockRemoved"}, {"block_hashes", of_event}, {"medium", kMedium}};
  const size_t num_tokens = num_blocks * static_cast<size_t>(block_size);
  const auto its_tokens = tokens.first(num_tokens);
  tokens = tokens.subspan(num_tokens);
  return {{"type", "BlockStored"},
          {"block_hashes", of_event},
          {"parent_block_hash", event.parent ? Json(*event.parent) : Json()},
          {"token_ids", its_tokens},
          {"block_size", block_size},
          {"lora_id", nullptr},
          {"medium", kMedium},
          {"lora_name", nullptr}};
}

}  // namespace

std::string encode_kv_events(const KvEventBatch& batch, double time_s, KvEventFormat format) {
  std::span<const uint64_t> hashes = batch.hashes;
  std::span<const TokenId> tokens = batch.tokens;
  Json events = Json::array();
  for (const KvEventBatch::Event& event : batch.events) {
    Json fields = next_event(event, batch.block_size, hashes, tokens);
    Json& made = events.emplace_back(format == KvEventFormat::map ? std::move(fields) : Json::array());
    if (format == KvEventFormat::map) continue;
    for (auto& [name, value] : fields.items())
      made.push_back(std::move(value));
  }
  std::string bytes;
  Json::to_msgpack(Json::array({time_s, std::move(events), 0}), bytes);
  return bytes;
}

KvEventPublisher::KvEventPublisher(KvEventOptions options)
    : options_(std::move(options)),
      is_bound_(is_own_address(options_.endpoint)),
      socket_(context_, zmq::socket_type::pub),
      wake_descriptor_(-1) {
  options_.endpoint =
      attach(socket_, "--kv-events-endpoint", options_.endpoint, is_bound_, options_.high_water_mark);
  if (!options_.replay_endpoint.empty()) {
    replay_.emplace(context_, zmq::socket_type::router);
    // Room for the longest answer and some short ones: a message that finds none is lost.
    options_.replay_endpoint = attach(*replay_, "--kv-events-replay-endpoint", options_.replay_endpoint, true,
                                      static_cast<int>(options_.max_replay_batches) + 1000);
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
    queued.time_s =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
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

void KvEventPublisher::run() {
  while (true) {
    std::vector<zmq::pollitem_t> items{{nullptr, wake_descriptor_, ZMQ_POLLIN, 0}};
    if (replay_) items.push_back({replay_->handle(), 0, ZMQ_POLLIN, 0});
    wait(items);
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
  const bool is_sent = send(socket_, {options_.topic, big_endian(queued.number), payload});
  if (replay_) {
    kept_bytes_ += payload.size();
    kept_.push_back({queued.number, std::move(payload)});
    while (kept_.size() > options_.max_replay_batches || kept_bytes_ > options_.max_replay_bytes) {
      kept_bytes_ -= kept_.front().payload.size();
      kept_.pop_front();
    }
  }
  queued.batch.clear();
  const std::lock_guard lock(mutex_);
  --counts_.queued;
  ++(is_sent ? counts_.published : counts_.dropped);
  if (spare_.size() < kMaxSpareBatches) spare_.push_back(std::move(queued.batch));
}

/// Requests are [client, nothing, first number]; others are ignored. Answers are [client, nothing, number, batch].
void KvEventPublisher::answer_replay() {
  const std::vector<zmq::message_t> request = receive(*replay_);
  if (request.size() != 3 || request.back().size() != sizeof(uint64_t)) return;
  uint64_t first = 0;
  std::memcpy(&first, request.back().data(), sizeof first);
  const auto answer = [&](uint64_t number, std::string_view payload) {
    send(*replay_, {request.front().to_string_view(), {}, big_endian(number), payload});
  };
  for (const Replayable& each : kept_) {
    if (each.number >= be64toh(first)) answer(each.number, each.payload);
  }
  answer(kEndOfReplay, {});
}

}  // namespace minfer
