#pragma once

#include <memory>
#include <string>

#include "kernels/device_trace.h"

namespace minfer::cuda {

/// Traces with CUPTI's activity records: every kernel (kernels of graphs too, one by one), copy and fill, with the calls
/// that launched them. CUPTI is attached to the process only between start() and stop(), so that steps outside cost no
/// more than without it; the graphs may be older than the attachment. Each of the two takes some tens of milliseconds.
/// Each also calls cudaProfilerStart() or cudaProfilerStop() to tell other tools of the range, with or without CUPTI.
///
/// One tracer of a process traces at a time: start() of a second one says so. It sees all devices of the process.
class CuptiTracer final : public DeviceTracer {
 public:
  CuptiTracer();
  ~CuptiTracer() override;
  CuptiTracer(const CuptiTracer&) = delete;
  CuptiTracer& operator=(const CuptiTracer&) = delete;

  std::string start(int64_t most_records) override;
  void begin_launch(int64_t step, int32_t device) override;
  void end_launch(int32_t device) override;
  bool is_full() const override;
  TraceRecords stop() override;

  class Session;

 private:
  std::unique_ptr<Session> session_;  ///< null: not tracing
};

}  // namespace minfer::cuda
