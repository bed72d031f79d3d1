#include "kernels/cuda/profiler/cupti_tracer.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "kernels/base/clock.h"
#include "kernels/cuda/launch/kernel_name.h"
#include "kernels/cuda/profiler/cupti_library.h"
#include "kernels/cuda/profiler/tracing_tools.h"

namespace minfer::cuda {

#ifdef MINFER_HAS_CUPTI_HEADERS

namespace {

constexpr size_t kBufferBytes = size_t{2} << 20;
constexpr size_t kBufferAlignment = 8;
constexpr size_t kBuffersAtStart = 8;
constexpr size_t kMostBuffers = 64;  ///< more are refused, and CUPTI then drops records
/// CUDA 12.6: with older versions graphs crashed after a second cuptiFinalize().
constexpr uint32_t kFirstSafeToFinalize = 24;
constexpr uint32_t kFirstWithOverheadData = 22;
constexpr CUpti_ActivityKind kKinds[]{
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
    CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMSET,
    // Both: libraries launch by calls of the driver, which records of runtime calls do not cover.
    CUPTI_ACTIVITY_KIND_RUNTIME,
    CUPTI_ACTIVITY_KIND_DRIVER,
    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
    CUPTI_ACTIVITY_KIND_OVERHEAD,
};

uint64_t CUPTIAPI host_clock() {
  return static_cast<uint64_t>(now_ns());
}

void CUPTIAPI ignore_callback(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

int64_t graph_node_of(uint64_t node) {
  return node == 0 ? -1 : static_cast<int64_t>(node);
}

/// The common fields of records of work on the device, and the bytes of those that have some.
template <class Record>
TraceRecords::Activity activity_of(ActivityKind kind, const Record& record) {
  TraceRecords::Activity activity{.kind = kind,
                                  .correlation = record.correlationId,
                                  .begin_ns = static_cast<int64_t>(record.start),
                                  .end_ns = static_cast<int64_t>(record.end),
                                  .graph_node = graph_node_of(record.graphNodeId),
                                  .stream = static_cast<int32_t>(record.streamId),
                                  .device = static_cast<int32_t>(record.deviceId)};
  if constexpr (requires { record.bytes; }) activity.bytes = static_cast<int64_t>(record.bytes);
  return activity;
}

}  // namespace

/// The state from start() to stop(). CUPTI hands buffers over on its own threads. Buffers and records have
/// separate mutexes, so that a launching thread never waits for a thread that reads records.
class CuptiTracer::Session {
 public:
  Session(const CuptiLibrary& library, int64_t most_records)
      : library_(library), most_records_(static_cast<size_t>(most_records)) {
    library_.get_version(&version_);
    for (size_t i = 0; i < kBuffersAtStart; ++i) {
      if (uint8_t* buffer = make_buffer()) free_buffers_.push_back(buffer);
    }
    windows_.reserve(1024);
  }
  ~Session() {
    for (uint8_t* buffer : free_buffers_)
      std::free(buffer);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Returns an error text if CUPTI cannot be used; then nothing is left attached.
  std::string attach();
  void detach();
  void begin_launch(int64_t step, int32_t device);
  void end_launch(int32_t device);
  bool is_full() const { return is_full_.load(std::memory_order_relaxed); }
  TraceRecords take() {
    records_.windows = std::move(windows_);
    return std::move(records_);
  }

  static void CUPTIAPI give_buffer(uint8_t** buffer, size_t* bytes, size_t* max_records);
  static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t* buffer, size_t bytes,
                                   size_t valid_bytes);

 private:
  std::string subscribe();
  std::string enable();
  TraceRecords::ClockPair read_clocks() const;
  uint8_t* make_buffer();
  uint8_t* next_buffer();
  void read(uint8_t* buffer, size_t valid_bytes);
  void add(const CUpti_Activity& record);
  void add(const TraceRecords::Activity& activity);
  int32_t name_of(const char* symbol);

  const CuptiLibrary& library_;
  const size_t most_records_;
  uint32_t version_ = 0;
  CUpti_SubscriberHandle subscriber_ = nullptr;

  std::mutex buffers_mutex_;
  std::vector<uint8_t*> free_buffers_;
  size_t num_buffers_ = 0;

  std::mutex records_mutex_;
  TraceRecords records_;  ///< without windows
  std::unordered_map<const char*, int32_t> names_;
  std::atomic<bool> is_full_{false};

  std::mutex windows_mutex_;  ///< each device has a thread that launches
  std::vector<TraceRecords::Window> windows_;
};

namespace {

/// CUPTI's callbacks know only the function. A thread that reads records holds the mutex, shared, until it is done.
std::shared_mutex g_session_mutex;
CuptiTracer::Session* g_session = nullptr;

}  // namespace

uint8_t* CuptiTracer::Session::make_buffer() {
  if (num_buffers_ == kMostBuffers) return nullptr;
  auto* buffer = static_cast<uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  if (buffer == nullptr) return nullptr;
  std::memset(buffer, 0, kBufferBytes);  // CUPTI is told that buffers are zero; this also touches the pages
  ++num_buffers_;
  return buffer;
}

uint8_t* CuptiTracer::Session::next_buffer() {
  const std::lock_guard lock(buffers_mutex_);
  if (free_buffers_.empty()) return make_buffer();
  uint8_t* const buffer = free_buffers_.back();
  free_buffers_.pop_back();
  return buffer;
}

void CUPTIAPI CuptiTracer::Session::give_buffer(uint8_t** buffer, size_t* bytes, size_t* max_records) {
  const std::shared_lock lock(g_session_mutex);
  *buffer = g_session != nullptr ? g_session->next_buffer() : nullptr;
  *bytes = *buffer != nullptr ? kBufferBytes : 0;
  *max_records = 0;
}

void CUPTIAPI CuptiTracer::Session::take_buffer(CUcontext /*context*/, uint32_t /*stream*/, uint8_t* buffer,
                                                size_t /*bytes*/, size_t valid_bytes) {
  const std::shared_lock lock(g_session_mutex);
  if (g_session == nullptr) return std::free(buffer);
  g_session->read(buffer, valid_bytes);
}

void CuptiTracer::Session::read(uint8_t* buffer, size_t valid_bytes) {
  {
    const std::lock_guard lock(records_mutex_);
    CUpti_Activity* record = nullptr;
    while (valid_bytes > 0 && library_.next_record(buffer, valid_bytes, &record) == CUPTI_SUCCESS)
      add(*record);
  }
  std::memset(buffer, 0, valid_bytes);
  const std::lock_guard lock(buffers_mutex_);
  free_buffers_.push_back(buffer);
}

void CuptiTracer::Session::add(const CUpti_Activity& record) {
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto& kernel = reinterpret_cast<const CUpti_ActivityKernel10&>(record);
      TraceRecords::Activity activity = activity_of(ActivityKind::kernel, kernel);
      activity.name = name_of(kernel.name);
      add(activity);
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      add(activity_of(ActivityKind::memcpy, reinterpret_cast<const CUpti_ActivityMemcpy6&>(record)));
      break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
      add(activity_of(ActivityKind::memset, reinterpret_cast<const CUpti_ActivityMemset4&>(record)));
      break;
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER: {
      const auto& call = reinterpret_cast<const CUpti_ActivityAPI&>(record);
      if (is_full()) break;
      records_.calls.push_back({.correlation = call.correlationId,
                                .begin_ns = static_cast<int64_t>(call.start),
                                .end_ns = static_cast<int64_t>(call.end)});
      break;
    }
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
      const auto& external = reinterpret_cast<const CUpti_ActivityExternalCorrelation&>(record);
      if (is_full() || external.externalKind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0) break;
      records_.call_steps.push_back(
          {.correlation = external.correlationId, .step = static_cast<int64_t>(external.externalId)});
      break;
    }
    case CUPTI_ACTIVITY_KIND_OVERHEAD: {
      const auto& overhead = reinterpret_cast<const CUpti_ActivityOverhead3&>(record);
      if (overhead.end > overhead.start)
        records_.overhead_ns += static_cast<int64_t>(overhead.end - overhead.start);
      if (version_ >= kFirstWithOverheadData) std::free(overhead.overheadData);
      break;
    }
    default:
      break;
  }
}

void CuptiTracer::Session::add(const TraceRecords::Activity& activity) {
  if (records_.activities.size() >= most_records_) {
    is_full_.store(true, std::memory_order_relaxed);
    ++records_.dropped;
    return;
  }
  records_.activities.push_back(activity);
}

/// One string stands for all records of a kernel.
int32_t CuptiTracer::Session::name_of(const char* symbol) {
  const auto [entry, is_new] = names_.try_emplace(symbol, static_cast<int32_t>(records_.names.size()));
  if (is_new) records_.names.push_back(symbol != nullptr ? kernel_name(symbol) : "");
  return entry->second;
}

std::string CuptiTracer::Session::subscribe() {
  CUptiResult result = CUPTI_SUCCESS;
  char holder[2 * CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN] = "";
  if (library_.subscribe_v2 != nullptr) {
    CUpti_SubscriberParams params{};
    params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
    params.subscriberName = "minfer";
    params.oldSubscriberName = holder;
    params.oldSubscriberSize = sizeof holder;
    result = library_.subscribe_v2(&subscriber_, ignore_callback, nullptr, &params);
  } else {
    result = library_.subscribe(&subscriber_, ignore_callback, nullptr);
  }
  if (result == CUPTI_SUCCESS) return {};
  if (result != CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
    return "CUPTI refuses to attach: " + library_.text(result);
  holder[sizeof holder - 1] = '\0';
  const std::string likely = likely_holder();
  if (holder[0] == '\0' && likely.empty()) return "CUPTI is held by another tool";
  if (holder[0] == '\0') return fmt::format("CUPTI is held, it seems by {}", likely);
  return fmt::format("CUPTI is held by \"{}\"{}", holder, likely.empty() ? "" : fmt::format(" ({})", likely));
}

std::string CuptiTracer::Session::enable() {
  uint8_t yes = 1;
  size_t bytes = sizeof yes;
  library_.set_attribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &bytes, &yes);
  CUptiResult result = library_.register_callbacks(give_buffer, take_buffer);
  if (result != CUPTI_SUCCESS) return "CUPTI takes no buffers: " + library_.text(result);
  size_t dropped = 0;
  library_.num_dropped(nullptr, 0,
                       &dropped);  // starts the count at 0: earlier losses belong to another range
  library_.register_timestamp_callback(host_clock);  // the records show whether it works: see join()
  for (const CUpti_ActivityKind kind : kKinds) {
    result = library_.enable(kind);
    if (result == CUPTI_SUCCESS) continue;
    const char* hint = result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES
                           ? "; the driver lets only administrators (NVreg_RestrictProfilingToAdminUsers)"
                           : "";
    return fmt::format("CUPTI does not record activities of kind {}: {}{}", static_cast<int>(kind),
                       library_.text(result), hint);
  }
  return {};
}

/// Takes several readings and returns the quickest.
TraceRecords::ClockPair CuptiTracer::Session::read_clocks() const {
  TraceRecords::ClockPair best{.library_ns = 0, .host_ns = now_ns()};
  int64_t least_ns = 0;
  for (int i = 0; i < 5; ++i) {
    uint64_t library_ns = 0;
    const int64_t before = now_ns();
    if (library_.get_timestamp(&library_ns) != CUPTI_SUCCESS) continue;
    const int64_t took_ns = now_ns() - before;
    if (best.library_ns != 0 && took_ns >= least_ns) continue;
    least_ns = took_ns;
    best = {static_cast<int64_t>(library_ns), before + took_ns / 2};
  }
  return best;
}

std::string CuptiTracer::Session::attach() {
  std::string error = subscribe();
  if (!error.empty()) return error;
  {
    const std::lock_guard lock(g_session_mutex);
    if (g_session != nullptr) error = "CUPTI is held by another engine of this process";
    if (error.empty()) g_session = this;
  }
  if (error.empty()) {
    error = enable();
    records_.start = read_clocks();
    if (!error.empty()) detach();
  } else {
    library_.unsubscribe(subscriber_);
  }
  return error;
}

void CuptiTracer::Session::detach() {
  records_.stop = read_clocks();
  library_.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  for (const CUpti_ActivityKind kind : kKinds)
    library_.disable(kind);
  library_.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  size_t dropped = 0;
  library_.num_dropped(nullptr, 0, &dropped);
  library_.unsubscribe(subscriber_);
  if (version_ >= kFirstSafeToFinalize && !CuptiHold::any()) library_.finalize();
  const std::lock_guard lock(g_session_mutex);
  g_session = nullptr;
  records_.dropped += static_cast<int64_t>(dropped);
}

void CuptiTracer::Session::begin_launch(int64_t step, int32_t device) {
  library_.push_external_id(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, static_cast<uint64_t>(step));
  const std::lock_guard lock(windows_mutex_);
  windows_.push_back({.step = step, .begin_ns = now_ns(), .device = device});
}

void CuptiTracer::Session::end_launch(int32_t device) {
  {
    const std::lock_guard lock(windows_mutex_);
    const auto last =
        std::find_if(windows_.rbegin(), windows_.rend(),
                     [&](const TraceRecords::Window& window) { return window.device == device; });
    if (last != windows_.rend()) last->end_ns = now_ns();
  }
  library_.pop_external_id(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, nullptr);
}

std::string CuptiTracer::start(int64_t most_records) {
  std::string error;
  if (const CuptiLibrary* library = CuptiLibrary::load(error)) {
    session_ = std::make_unique<Session>(*library, most_records);
    error = session_->attach();
    if (!error.empty()) session_.reset();
  }
  cudaProfilerStart();
  return error;
}

TraceRecords CuptiTracer::stop() {
  cudaProfilerStop();
  if (session_ == nullptr) return {};
  session_->detach();
  TraceRecords records = session_->take();
  session_.reset();
  return records;
}

#else  // MINFER_HAS_CUPTI_HEADERS

class CuptiTracer::Session {
 public:
  void detach() {}
  void begin_launch(int64_t, int32_t) {}
  void end_launch(int32_t) {}
  bool is_full() const { return false; }
};

std::string CuptiTracer::start(int64_t) {
  cudaProfilerStart();
  return "this program was built without the headers of CUPTI 13 or later";
}

TraceRecords CuptiTracer::stop() {
  cudaProfilerStop();
  return {};
}

#endif  // MINFER_HAS_CUPTI_HEADERS

CuptiTracer::CuptiTracer() = default;
CuptiTracer::~CuptiTracer() {
  if (session_ != nullptr) session_->detach();
}

void CuptiTracer::begin_launch(int64_t step, int32_t device) {
  if (session_ != nullptr) session_->begin_launch(step, device);
}

void CuptiTracer::end_launch(int32_t device) {
  if (session_ != nullptr) session_->end_launch(device);
}

bool CuptiTracer::is_full() const {
  return session_ != nullptr && session_->is_full();
}

}  // namespace minfer::cuda
