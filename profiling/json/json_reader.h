#pragma once

#include <filesystem>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/device_sample.h"
#include "profiling/counters/counter_window.h"
#include "profiling/host/host_sample.h"
#include "profiling/record/ended_request.h"
#include "profiling/record/kept_trial.h"
#include "profiling/record/profile_header.h"
#include "profiling/record/rank_step.h"
#include "profiling/summary/summary.h"
#include "profiling/trace/range_analysis.h"

namespace minfer {

/// The contents of a profile file.
struct ProfileFile {
  ProfileHeader header;
  std::vector<KernelLaunch> launches;  ///< OpSummary::launches are indices into this
  std::vector<StepSummary> steps;
  std::vector<RangeLine> ranges = {};       ///< traced, or failed to be
  std::vector<StepKernels> traced = {};     ///< the steps of all ranges; `steps` have theirs too
  std::vector<KernelLine> kernels = {};     ///< of all ranges
  std::vector<EndedRequest> requests = {};  ///< in the order of their ends
  std::vector<RankStep> rank_steps = {};    ///< the times of steps on each of several ranks
  std::vector<HostSample> host = {};        ///< the machine's samples
  std::vector<DeviceSample> devices = {};   ///< the devices' samples
  MemoryUse memory_at_end = {};        ///< total_bytes 0: not known, or the backend has no memory of its own
  std::string note = {};               ///< the part left out since the file ends within a line; empty: none
  std::vector<KeptTrial> trials = {};  ///< tried options, in order
  std::vector<CounterWindow> counters = {};  ///< windows of hardware counters, in the order of time
};

/// Receives the contents of a profile file, line by line, in order: the header first, each launch before the steps that name it, a traced
/// range with its steps and their kernels behind those steps.
class ProfileVisitor {
 public:
  virtual ~ProfileVisitor() = default;
  virtual void header(ProfileHeader) {}
  virtual void launch(KernelLaunch) {}
  /// `kernels` is not known yet: see traced_step(). The visitor may move from the step; the reader reuses its memory for the next one.
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

/// Reads a profile file up to its last whole line, and keeps nothing. Returns a note on what was left out because the file ends within a
/// line; empty: nothing. Skips unknown fields; if a field stands twice in an object, one counts. Throws FileError, naming file, line
/// and field, if there is no whole header line, or if a line breaks the schema or is longer than 8 MiB. By then the visitor has the
/// lines before it. Control characters in texts become '?', so that a file cannot steer the terminal it is shown on.
std::string read_profile(const std::filesystem::path& path, ProfileVisitor& visitor);

/// The same from a stream; errors call it `name`.
std::string read_profile(std::istream& stream, std::string_view name, ProfileVisitor& visitor);

/// Reads the whole file into memory: for small files.
ProfileFile read_profile(const std::filesystem::path& path);
ProfileFile read_profile(std::istream& stream, std::string_view name);

}  // namespace minfer
