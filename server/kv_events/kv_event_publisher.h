#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <sys/eventfd.h>
#include <zmq.hpp>

#include "engine/memory/kv_events.h"

namespace minfer {

/// vLLM's two formats of an event. A batch is an array in both.
enum class KvEventFormat : uint8_t {
  map,    ///< fields by name: vLLM 0.24 (2026) and later
  array,  ///< fields by position: earlier versions
};

/// A batch as vLLM (vllm/distributed/kv_events.py) writes it in MessagePack: [seconds since 1970, events, data-parallel rank 0].
std::string encode_kv_events(const KvEventBatch& batch, double time_s, KvEventFormat format);

struct KvEventOptions {
  /// The socket binds to it if it has "*" or "::" or begins with ipc: or inproc:, else connects to it, as vLLM does; empty: no events.
  std::string endpoint;
  std::string replay_endpoint = {};  ///< bound; empty: nothing is replayed
  std::string topic = {};
  KvEventFormat format = KvEventFormat::map;
  int high_water_mark = 10'000;           ///< batches that wait for a subscriber; a slower one loses some
  size_t max_queue_bytes = 32 << 20;      ///< between the engine and the publisher's thread
  size_t max_replay_batches = 10'000;     ///< kept for subscribers that missed some
  size_t max_replay_bytes = 64ull << 20;  ///< bytes of these
};

/// Batches since the start, and now.
struct KvEventCounts {
  uint64_t published = 0;
  /// Batches that found the queue full: subscribers see a gap in the numbers, then a batch that begins with a clearance.
  uint64_t dropped = 0;
  uint64_t queued = 0;
};

/// Publishes the changes of the prefix cache over ZeroMQ as vLLM does: messages of topic, number of the batch (8 bytes, big-endian,
/// from 0 on, one a batch whether or not anybody got it) and the batch in MessagePack. A subscriber that missed batches sends the
/// first number it wants to the replay endpoint; it gets the kept batches from there on as number and batch, then -1 and nothing.
///
/// The engine's thread puts batches into a bounded queue; the publisher's own thread encodes and sends them. When the queue
/// is full, a batch is dropped, as are all later ones until the queue is empty; then the engine is asked for the whole cache.
class KvEventPublisher final : public KvEventSink {
 public:
  /// Throws Error naming the option and the endpoint if it cannot have an endpoint.
  explicit KvEventPublisher(KvEventOptions options);
  /// Sends the queued batches, as far as that needs no waiting.
  ~KvEventPublisher() override;

  bool wants_all() override;
  void take(KvEventBatch& batch) override;

  KvEventCounts counts() const;  ///< any thread
  bool is_bound() const { return is_bound_; }
  const std::string& endpoint() const { return options_.endpoint; }  ///< with the port that was bound
  const std::string& replay_endpoint() const { return options_.replay_endpoint; }

 private:
  struct Queued {
    uint64_t number = 0;
    double time_s = 0.0;
    KvEventBatch batch;
  };
  struct Replayable {
    uint64_t number = 0;
    std::string payload;
  };

  void run();
  std::optional<Queued> next_queued();
  void publish(Queued& queued);
  void answer_replay();
  void wake() { [[maybe_unused]] const int rc = eventfd_write(wake_descriptor_, 1); }

  KvEventOptions options_;
  bool is_bound_;
  zmq::context_t context_;
  // The publisher's thread, once it runs.
  zmq::socket_t socket_;
  std::optional<zmq::socket_t> replay_;
  std::deque<Replayable> kept_;
  size_t kept_bytes_ = 0;

  int wake_descriptor_;
  mutable std::mutex mutex_;
  std::deque<Queued> queue_;
  std::vector<KvEventBatch> spare_;  ///< empty batches that keep their memory
  size_t queue_bytes_ = 0;
  uint64_t next_number_ = 0;
  bool is_behind_ = true;  ///< subscribers do not know the whole cache
  bool stopping_ = false;
  KvEventCounts counts_;

  std::jthread thread_;  ///< last: everything above outlives it
};

}  // namespace minfer
