#include "profiling/chrome_trace/kernel_tracks.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "profiling/chrome_trace/op_timeline.h"

namespace minfer {
namespace {

/// The length of a call's slice; the records have only the ends of calls.
constexpr int64_t kCallNs = 1'000;

/// Categories and names are those of PyTorch's profiler, by which tools tell kernels from copies.
struct ActivityNames {
  std::string_view category;
  std::string_view slice;  ///< empty: the kernel's own
  const char* call;
};

const ActivityNames& names_of(ActivityKind kind) {
  static constexpr std::array<ActivityNames, 3> kNames{{{"kernel", "", "cudaLaunchKernel"},
                                                        {"gpu_memcpy", "Memcpy", "cudaMemcpyAsync"},
                                                        {"gpu_memset", "Memset", "cudaMemsetAsync"}}};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view slice_name(const KernelLine& kernel) {
  const std::string_view fixed = names_of(kernel.kind).slice;
  if (!fixed.empty()) return fixed;
  return kernel.kernel.empty() ? std::string_view("(no name)") : std::string_view(kernel.kernel);
}

void write_sizes(JsonText& json, std::string_view key, const std::array<int32_t, 3>& sizes) {
  json.key(key).open('[');
  for (const int32_t size : sizes)
    json.value(size);
  json.close(']');
}

void write_launch(JsonText& args, const KernelLaunch& launch) {
  args.field("path", launch.path);
  write_sizes(args, "grid", launch.grid);
  write_sizes(args, "block", launch.block);
  if (launch.cluster != std::array{1, 1, 1}) write_sizes(args, "cluster", launch.cluster);
  args.field("registers per thread", launch.registers);
  args.field("shared memory", int64_t{launch.static_shared_bytes} + launch.dynamic_shared_bytes);
  args.field("blocks per SM", launch.blocks_per_sm).field("waves", launch.waves, 3);
  args.field("theoretical occupancy %", 100.0 * launch.occupancy, 1);
  args.field("occupancy limiter", name(launch.limiter));
  if (launch.reads_ahead_bytes > 0) args.field("reads ahead bytes", launch.reads_ahead_bytes);
}

}  // namespace

std::optional<int64_t> launch_end_ns(const KernelLine& kernel) {
  if (kernel.launch_delay_us < 0.0) return std::nullopt;
  return std::max(-kLatestNs, bounded_ns(kernel.start_ns) - ns_of(kernel.launch_delay_us));
}

std::optional<int64_t> last_launch_ns(std::span<const KernelLine> kernels) {
  constexpr int64_t kComesBackNs = 100'000;
  std::optional<int64_t> last;
  for (const KernelLine& kernel : kernels) {
    const auto end_ns = launch_end_ns(kernel);
    if (!kernel.phase || !end_ns) continue;
    if (last && kernel.op == "sample" && *end_ns - *last > kComesBackNs) break;
    last = std::max(last.value_or(*end_ns), *end_ns);
  }
  return last;
}

void KernelTracks::add(std::span<const KernelLine> kernels, std::span<const KernelLaunch> launches) {
  std::map<int64_t, int64_t> graphs;  // by the end of the call that launched one: its correlation
  std::vector<Call> calls;            // of each kernel
  for (const KernelLine& kernel : kernels) {
    Call& call = calls.emplace_back();
    const auto end_ns = launch_end_ns(kernel);
    if (end_ns && kernel.in_graph) {
      // Kernels that began before the call had ended do not tell when it did.
      const auto found =
          kernel.launch_delay_us > 0.0 || graphs.empty() ? graphs.find(*end_ns) : graphs.begin();
      if (found != graphs.end()) {
        call.correlation = found->second;
        continue;
      }
    }
    call.correlation = ++num_calls_;
    if (!end_ns) continue;
    if (kernel.in_graph) graphs.emplace(*end_ns, num_calls_);
    call.name = kernel.in_graph ? "cudaGraphLaunch" : names_of(kernel.kind).call;
    call.span = {*end_ns - kCallNs, *end_ns};
    call.step = kernel.step;
  }
  write_calls(calls);
  for (size_t i = 0; i < kernels.size(); ++i)
    write_kernel(kernels[i], calls[i], launches);
}

void KernelTracks::write_calls(std::vector<Call>& calls) {
  std::vector<Call*> in_order;
  for (Call& call : calls) {
    if (call.is_drawn()) in_order.push_back(&call);
  }
  std::ranges::stable_sort(in_order, {}, [](const Call* call) { return call->span.end_ns; });
  for (Call* call : in_order) {
    call->track = tracks_.calls(calls_.place(call->span));
    JsonText& args = events_.add_slice(call->track, call->name, "cuda_runtime", call->span);
    args.field("correlation", call->correlation).field("step", call->step);
    args.field("note", "its end is known, its begin is not");
  }
}

void KernelTracks::write_kernel(const KernelLine& kernel, const Call& call,
                                std::span<const KernelLaunch> launches) {
  Stream& stream = streams_[kernel.stream];
  const TimeSpan whole = span_of(kernel);
  const TimeSpan own = take_own(whole, stream.busy_until_ns);
  const Track track = tracks_.stream(kernel.stream);
  JsonText& args = events_.add_slice(track, slice_name(kernel), names_of(kernel.kind).category, own);
  args.field("device", 0).field("stream", kernel.stream).field("correlation", call.correlation);
  args.field("step", kernel.step);
  if (kernel.phase) {
    args.field("op", kernel.op).field("layer", kernel.layer);
    args.field("phase", name(*kernel.phase));
  }
  args.field("graph", kernel.in_graph).field("whole us", kernel.us).field("own us", kernel.own_us);
  if (kernel.gap_us > 0.0)
    args.field("gap before us", kernel.gap_us).field("gap cause", name(kernel.gap_cause));
  if (kernel.launch_delay_us >= 0.0) args.field("launch delay us", kernel.launch_delay_us);
  if (kernel.kind != ActivityKind::kernel) args.field("bytes", kernel.bytes);
  if (kernel.launch >= 0 && static_cast<size_t>(kernel.launch) < launches.size())
    write_launch(args, launches[static_cast<size_t>(kernel.launch)]);

  if (call.is_drawn() && own.duration_ns() > 0)
    events_.add_flow(call.correlation, call.track, call.span.begin_ns, track, own.begin_ns);
  if (whole.begin_ns < own.begin_ns) {
    const TimeSpan early{whole.begin_ns, std::min(own.begin_ns, whole.end_ns)};
    const Track lane = tracks_.overlap(kernel.stream, stream.early.place(early));
    events_.add_slice(lane, slice_name(kernel), "begun_early", early)
        .field("step", kernel.step)
        .field("op", kernel.op)
        .field("whole us", kernel.us);
  }
}

}  // namespace minfer
