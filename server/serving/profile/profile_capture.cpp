#include "server/serving/profile/profile_capture.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <limits>
#include <utility>

#include <fcntl.h>
#include <fmt/chrono.h>
#include <unistd.h>

#include "kernels/base/error.h"
#include "server/api/fields/json_fields.h"
#include "server/routes/router.h"

namespace minfer {
/// The contents of a body of POST /start_profile.
struct ProfileRequest {
  ProfileDetail detail = ProfileDetail::op;
  std::optional<int64_t> start_step;  ///< absent: the next step
  std::optional<int64_t> num_steps;   ///< absent: until POST /stop_profile
  bool kernels = true;                ///< trace each kernel, where the backend can
  bool counters = false;              ///< read hardware counters, in windows one after the other
};

namespace {

constexpr int64_t kMostSteps = int64_t{1} << 53;  // that JSON's numbers give exactly

/// Reads such a body: "detail" ("op" or "layer"), "counters" (true: read hardware counters), and with
/// SGLang's names "start_step", "num_steps" and "activities" (without "GPU" or "CUDA_PROFILER" in it no kernels are traced).
/// Load tools send fields of their own, which are ignored (vLLM's sends a whole completion request), unless they would
/// change what is recorded (SGLang's output_dir and others): these are a 400, as is anything that is not a JSON object.
ProfileRequest read_profile_request(std::string_view body) {
  ProfileRequest request;
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos) return request;
  const Json root = parse_json_body(body);
  UnknownFields unknown(false);
  JsonFields fields(root, {}, unknown);
  for (const char* name : {"file", "output_dir", "profile_by_stage"}) {
    const Json* value = fields.any(name);
    if (value != nullptr && *value != false)
      throw unsupported(name, "not supported; the replies name the profile's file");
  }
  const std::string detail = fields.text("detail").value_or("op");
  if (detail != "op" && detail != "layer") throw wrong_value("detail", detail, "\"op\" or \"layer\"");
  request.detail = detail == "op" ? ProfileDetail::op : ProfileDetail::layer;
  request.counters = fields.boolean("counters").value_or(false);
  request.start_step = fields.integer("start_step", 0, kMostSteps);
  request.num_steps = fields.integer("num_steps", 1, kMostSteps);
  if (const Json* activities = fields.array("activities"))
    request.kernels = std::ranges::any_of(
        *activities, [](const Json& activity) { return activity == "GPU" || activity == "CUDA_PROFILER"; });
  return request;
}

/// Creates an empty file in `folder` under an unused name,
/// "minfer-DATE-TIME-PROCESS.jsonl", with a number behind it if need be. Throws FileError.
std::filesystem::path create_profile_file(const std::filesystem::path& folder) {
  const std::string stem =
      fmt::format("minfer-{:%Y%m%d-%H%M%S}-{}", fmt::gmtime(std::time(nullptr)), ::getpid());
  for (int number = 1;; ++number) {
    const std::string name = number == 1 ? stem + ".jsonl" : fmt::format("{}-{}.jsonl", stem, number);
    std::filesystem::path path = std::filesystem::absolute(folder / name).lexically_normal();
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file >= 0) {
      ::close(file);
      return path;
    }
    if (errno != EEXIST)
      fail<FileError>("profile file {}: cannot create: {}", path.string(), std::strerror(errno));
  }
}

}  // namespace

ProfileCapture::~ProfileCapture() {
  if (!recording_) return;
  is_leaving_ = true;
  sources_.engine.cut_profile_range();
  recording_->detach();
  log_end(recording_->close());
}

/// Takes as long as switching the counters on does.
void ProfileCapture::open_file(const ProfileRequest& request) {
  ProfileHeader header = header_;
  header.detail = request.detail;
  header.asked = {.kernels = request.kernels && sources_.engine.can_trace(), .counters = request.counters};
  stamp_clocks(header);
  path_ = create_profile_file(folder_);
  const auto warn = [this](std::string_view event, const std::string& reason) {
    sources_.log.write(LogLevel::warning, event, {{"reason", reason}});
  };
  recording_ = std::make_shared<ProfileRecording>(sources_.engine, path_, std::move(header), warn);
}

void ProfileCapture::start(const std::shared_ptr<HttpExchange>& exchange) {
  if (state_ != State::idle) throw ApiError(409, "a profile is being taken; POST /stop_profile ends it");
  state_ = State::changing;
  sources_.loop.run_in_background([this, exchange] {
    try {
      const ProfileRequest request = read_profile_request(exchange->request().body);
      sources_.loop.post([exchange] { exchange->drop_body(); });
      if (request.counters && sources_.counters != nullptr)
        throw ApiError(
            409, "hardware counters are being read for as long as the server runs: see /profile/summary");
      open_file(request);
      sources_.engine_service.run_between_steps(
          [this, exchange, request](Engine& engine) { attach(exchange, request, engine); });
    } catch (const std::exception& error) {
      recording_.reset();
      sources_.loop.post([this, exchange, error = failure(error)] {
        state_ = State::idle;
        answer_error(*exchange, error);
      });
    }
  });
}

/// On the engine's thread, between two steps.
void ProfileCapture::attach(const std::shared_ptr<HttpExchange>& exchange, const ProfileRequest& request,
                            Engine& engine) {
  const int64_t next_step = engine.next_step();
  const int64_t first_step = request.start_step.value_or(next_step);
  const auto refuse = [&](const ApiError& error) {
    sources_.loop.post([this, exchange, error] { give_up(exchange, error); });
  };
  if (engine.has_profile_range())
    return refuse(ApiError(409, "the steps of --profile-range are being profiled, or will be"));
  if (first_step < next_step)
    return refuse(bad_request("start_step", "{} has passed, the next step is {}", first_step, next_step));
  const int64_t last_step =
      request.num_steps ? first_step + *request.num_steps - 1 : std::numeric_limits<int64_t>::max();
  recording_->attach(first_step, last_step);
  const auto on_end = [this, recording = recording_] {
    recording->detach();
    if (!is_leaving_) sources_.loop.post([this] { close_file(); });
  };
  engine.set_profile_range(
      {.first_step = first_step,
       .last_step = last_step,
       .traces = request.kernels,
       .on_trace = [recording = recording_](RangeTrace range) { recording->add_range(std::move(range)); },
       .on_end = on_end});
  sources_.loop.post([this, exchange, detail = request.detail, first_step] {
    state_ = State::running;
    exchange->respond(
        {.body =
             dump_json({{"file", path_.string()}, {"detail", name(detail)}, {"first_step", first_step}})});
  });
}

/// Removes a file that was made for nothing.
void ProfileCapture::give_up(const std::shared_ptr<HttpExchange>& exchange, const ApiError& error) {
  sources_.loop.run_in_background([this, exchange, error] {
    recording_->close();
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
    sources_.loop.post([this, exchange, error] {
      recording_.reset();
      state_ = State::idle;
      answer_error(*exchange, error);
    });
  });
}

void ProfileCapture::stop(const std::shared_ptr<HttpExchange>& exchange) {
  if (state_ != State::running || stopping_)
    throw ApiError(409, "no profile is being taken; POST /start_profile begins one");
  stopping_ = exchange;
  sources_.engine_service.run_between_steps([](Engine& engine) { engine.end_profile_range(); });
}

/// Called when the steps have been recorded: all that were asked for, or those up to stop().
void ProfileCapture::close_file() {
  state_ = State::changing;
  sources_.loop.run_in_background(
      [this] { sources_.loop.post([this, stats = recording_->close()] { finish(stats); }); });
}

void ProfileCapture::finish(const ProfileWriter::Stats& stats) {
  state_ = State::idle;
  const std::string file = path_.string();
  const std::shared_ptr<HttpExchange> exchange = std::exchange(stopping_, nullptr);
  if (exchange == nullptr) log_end(stats);
  const std::shared_ptr<ProfileRecording> recording = std::exchange(recording_, nullptr);
  if (exchange == nullptr) return;
  if (!stats.error.empty()) {
    answer_error(*exchange, ApiError(500, fmt::format("{} holds {} steps, {} could not be written: {}", file,
                                                      stats.written, stats.dropped, stats.error)));
    return;
  }
  Json body{{"file", file}, {"steps", stats.written}, {"dropped", stats.dropped}};
  if (stats.dropped_lines > 0) body["dropped_lines"] = stats.dropped_lines;
  if (const std::optional<RangeLine>& range = recording->range) {
    if (range->error.empty()) body["kernels"] = range->kernels;
    if (!range->error.empty()) body["kernels_error"] = range->error;
  }
  const std::string& counters_error = recording->counters_error;
  if (recording->has_counters && (recording->counter_windows > 0 || counters_error.empty()))
    body["counter_windows"] = recording->counter_windows;
  if (!counters_error.empty()) body["counters_error"] = counters_error;
  exchange->respond({.body = dump_json(body)});
}

void ProfileCapture::log_end(const ProfileWriter::Stats& stats) {
  const std::string file = path_.string();
  sources_.log.write(LogLevel::info, "profile",
                     {{"file", file},
                      {"steps", static_cast<int64_t>(stats.written)},
                      {"dropped", static_cast<int64_t>(stats.dropped)},
                      {"kernels", recording_->range ? recording_->range->kernels : int64_t{0}}});
}

}  // namespace minfer
