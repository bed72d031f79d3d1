#pragma once

#include <memory>
#include <string>

#include "kernels/device_trace.h"

namespace minfer::cuda {

/// Traces by CUPTI's activity records: every kernel (those of graphs by themselves), copy and fill, with the calls that launched
/// them. CUPTI is attached to the process between start() and stop() only, so that steps outside cost what they cost without it; it
/// need not have seen the graphs made. Both take some tens of milliseconds. At both ends cudaProfilerStart() and cudaProfilerStop()
/// tell other tools of the range, whether or not CUPTI can be had.
///
/// One of a process traces at a time: start() of a second says so. It sees all devices of the process.
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
