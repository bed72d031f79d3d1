#pragma once

#include <filesystem>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/device_sample.h"
#include "profiling/counters/counter_window.h"
#include "profiling/findings/kept_trial.h"
#include "profiling/host/host_sample.h"
#include "profiling/json/profile_header.h"
#include "profiling/record/ended_request.h"
#include "profiling/record/rank_step.h"
#include "profiling/report/summary.h"
#include "profiling/trace/range_analysis.h"

namespace minfer {

/// What a profile file says.
struct ProfileFile {
  ProfileHeader header;
  std::vector<KernelLaunch> launches;  ///< what OpSummary::launches are indices into
  std::vector<StepSummary> steps;
  std::vector<RangeLine> ranges = {};       ///< that were traced, or could not be
  std::vector<StepKernels> traced = {};     ///< steps of all of them; `steps` have theirs too
  std::vector<KernelLine> kernels = {};     ///< of all of them
  std::vector<EndedRequest> requests = {};  ///< that ended, in this order
  std::vector<RankStep> rank_steps = {};    ///< what steps took on each of several ranks
  std::vector<HostSample> host = {};        ///< what the machine did meanwhile
  std::vector<DeviceSample> devices = {};   ///< what devices said of themselves
  MemoryUse memory_at_end = {};             ///< total_bytes 0: not known, or none of the backend's own
  std::string note = {};  ///< what was left out because the file ends within a line; empty: nothing
  std::vector<KeptTrial> trials = {};        ///< what options gave the load, as they were tried
  std::vector<CounterWindow> counters = {};  ///< windows of hardware counters, in the order of time
};

/// Takes what a profile file says, line by line in its order: the header first, each launch before the steps that name it, a traced
/// range with its steps and their kernels behind those steps.
class ProfileVisitor {
 public:
  virtual ~ProfileVisitor() = default;
  virtual void header(ProfileHeader) {}
  virtual void launch(KernelLaunch) {}
  /// `kernels` is not known yet: see traced_step(). The step may be moved from; its memory is used again for the next one.
  virtual void step(StepSummary&) {}
  virtual void range(RangeLine) {}
  virtual void traced_step(const StepKernels&) {}
  virtual void kernel(KernelLine) {}
  virtual void counters(CounterWindow) {}
  virtual void request(EndedRequest) {}
  virtual void rank_step(const RankStep&) {}
  virtual void memory(MemoryUse) {}
  virtual void host(const HostSample&) {}
  virtual void device(const DeviceSample&) {}
  virtual void trial(KeptTrial) {}
};

/// Reads a profile file up to its last whole line and keeps nothing of it. Returns what was left out because the file ends within a line;
/// empty: nothing. Fields it does not know are passed over; of one that stands twice in an object one counts. Throws FileError, naming
/// file, line and field, if there is no whole header line, a line is not as the schema says, or is longer than 8 MiB; what came before has
/// been handed over then. Control characters in texts become '?', so that a file cannot steer the terminal it is shown on.
std::string read_profile(const std::filesystem::path& path, ProfileVisitor& visitor);

/// The same from a stream; `name` stands for it in errors.
std::string read_profile(std::istream& stream, std::string_view name, ProfileVisitor& visitor);

/// The whole file in memory: for small ones.
ProfileFile read_profile(const std::filesystem::path& path);
ProfileFile read_profile(std::istream& stream, std::string_view name);

}  // namespace minfer
