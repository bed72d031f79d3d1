#include "server/serving/profile/profile_capture.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <limits>
#include <utility>

#include <fcntl.h>
#include <fmt/chrono.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "kernels/base/error.h"
#include "profiling/json/lines.h"
#include "server/api/fields/json_fields.h"
#include "server/routes/router.h"
#include "server/serving/profile/profile_session.h"

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
  const nlohmann::ordered_json root = parse_json_body(body);
  UnknownFields unknown(false);
  JsonFields fields(root, {}, unknown);
  for (const char* name : {"file", "output_dir", "profile_by_stage"}) {
    const nlohmann::ordered_json* value = fields.any(name);
    if (value != nullptr && *value != false)
      throw unsupported(name, "not supported; the replies name the profile's file");
  }
  const std::string detail = fields.text("detail").value_or("op");
  if (detail != "op" && detail != "layer") throw wrong_value("detail", detail, "\"op\" or \"layer\"");
  request.detail = detail == "op" ? ProfileDetail::op : ProfileDetail::layer;
  request.counters = fields.boolean("counters").value_or(false);
  request.start_step = fields.integer("start_step", 0, kMostSteps);
  request.num_steps = fields.integer("num_steps", 1, kMostSteps);
  if (const nlohmann::ordered_json* activities = fields.array("activities")) {
    request.kernels = std::ranges::any_of(*activities, [](const nlohmann::ordered_json& activity) {
      return activity == "GPU" || activity == "CUDA_PROFILER";
    });
  }
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

ProfileCapture::ProfileCapture(TaskRunner& loop, Engine& engine, EngineService& engine_service,
                               ServerLog& log, ProfileHeader header, std::filesystem::path folder,
                               bool counters_are_read)
    : loop_(loop),
      engine_(engine),
      engine_service_(engine_service),
      log_(log),
      header_(std::move(header)),
      folder_(std::move(folder)),
      counters_are_read_(counters_are_read) {}

ProfileCapture::~ProfileCapture() {
  if (!writer_) return;
  is_leaving_ = true;
  engine_.cut_profile_range();
  engine_.recorder().remove_sink(*writer_);
  if (collector_) detach(*collector_);
  collector_.reset();
  log_end(path_.string(), writer_->close());
}

std::shared_ptr<ProfileWriter> ProfileCapture::open_file(const ProfileRequest& request,
                                                         std::filesystem::path& path) {
  ProfileHeader header = header_;
  header.detail = request.detail;
  header.asked = {.kernels = request.kernels && engine_.can_trace(), .counters = request.counters};
  stamp_clocks(header);
  path = create_profile_file(folder_);
  WriterOptions options;
  options.host = &engine_.host_sampler();
  options.devices = engine_.device_sampler();
  options.on_error = [this](const std::string& reason) {
    log_.write(LogLevel::warning, "the profile cannot be written", {{"reason", reason}});
  };
  options.on_range = [this](const RangeLine& range) {
    if (!range.error.empty())
      log_.write(LogLevel::warning, "kernels are not traced", {{"reason", range.error}});
    range_ = range;
    has_range_ = true;
  };
  return std::make_shared<ProfileWriter>(path, std::move(header), std::move(options));
}

/// Takes as long as switching the counters on does.
void ProfileCapture::open_counters(const std::shared_ptr<ProfileWriter>& writer) {
  counter_windows_ = 0;
  counters_error_.clear();
  collector_ = std::make_unique<CounterCollector>(
      engine_.counters(), CollectorOptions{}, [this, writer](const CounterWindow& window) {
        if (window.error.empty()) ++counter_windows_;
        if (!window.error.empty()) {
          counters_error_ += (counters_error_.empty() ? "" : "; ") + window.error;
          log_.write(LogLevel::warning, "no hardware counters", {{"reason", window.error}});
        }
        std::string line;
        append_line(line, window);
        writer->add_line(std::move(line));
      });
}

/// On the engine's thread, or after it has ended.
void ProfileCapture::detach(CounterCollector& collector) {
  engine_.watch_rank_stamps(nullptr);
  engine_.recorder().remove_sink(collector);
}

void ProfileCapture::start(const std::shared_ptr<HttpExchange>& exchange) {
  if (state_ != State::idle) throw ApiError(409, "a profile is being taken; POST /stop_profile ends it");
  state_ = State::changing;
  has_range_ = false;
  loop_.run_in_background([this, exchange] {
    std::function<void()> then;
    try {
      const ProfileRequest request = read_profile_request(exchange->request().body);
      if (request.counters && counters_are_read_)
        throw ApiError(
            409, "hardware counters are being read for as long as the server runs: see /profile/summary");
      std::filesystem::path path;
      auto writer = open_file(request, path);
      if (request.counters) open_counters(writer);
      then = [this, exchange, writer, path, request] { attach(exchange, writer, path, request); };
    } catch (const std::exception& error) {
      then = [this, exchange, error = failure(error)] {
        state_ = State::idle;
        answer_error(*exchange, error);
      };
    }
    loop_.post([exchange, then = std::move(then)] {
      exchange->drop_body();
      then();
    });
  });
}

void ProfileCapture::attach(const std::shared_ptr<HttpExchange>& exchange,
                            std::shared_ptr<ProfileWriter> writer, std::filesystem::path path,
                            const ProfileRequest& request) {
  writer_ = std::move(writer);
  path_ = std::move(path);
  engine_service_.run_between_steps([this, exchange, request, writer = writer_,
                                     collector = collector_.get()](Engine& engine) {
    const int64_t next_step = engine.next_step();
    const int64_t first_step = request.start_step.value_or(next_step);
    const auto refuse = [&](const ApiError& error) {
      loop_.post([this, exchange, error] { give_up(exchange, error); });
    };
    if (engine.has_profile_range())
      return refuse(ApiError(409, "the steps of --profile-range are being profiled, or will be"));
    if (first_step < next_step) {
      return refuse(bad_request("start_step", "{} has passed, the next step is {}", first_step, next_step));
    }
    const int64_t last_step =
        request.num_steps ? first_step + *request.num_steps - 1 : std::numeric_limits<int64_t>::max();
    writer->set_steps(first_step, last_step);
    engine.recorder().add_sink(*writer);
    if (collector != nullptr) {
      collector->set_steps(first_step, last_step);
      engine.recorder().add_sink(*collector);
      engine.watch_rank_stamps(collector);
    }
    engine.set_profile_range({.first_step = first_step,
                              .last_step = last_step,
                              .traces = request.kernels,
                              .on_trace = [writer](RangeTrace range) { writer->add_range(std::move(range)); },
                              .on_end =
                                  [this, writer, collector, &engine] {
                                    add_memory_at_end(*writer, engine);
                                    engine.recorder().remove_sink(*writer);
                                    if (collector != nullptr) detach(*collector);
                                    if (!is_leaving_) loop_.post([this] { on_end(); });
                                  }});
    loop_.post([this, exchange, detail = request.detail, first_step] {
      state_ = State::running;
      exchange->respond(
          {.body =
               dump_json({{"file", path_.string()}, {"detail", name(detail)}, {"first_step", first_step}})});
    });
  });
}

/// Removes a file that was made for nothing.
void ProfileCapture::give_up(const std::shared_ptr<HttpExchange>& exchange, const ApiError& error) {
  loop_.run_in_background([this, exchange, error] {
    collector_.reset();
    writer_->close();
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
    loop_.post([this, exchange, error] {
      writer_.reset();
      state_ = State::idle;
      answer_error(*exchange, error);
    });
  });
}

void ProfileCapture::stop(const std::shared_ptr<HttpExchange>& exchange) {
  if (state_ != State::running || stopping_)
    throw ApiError(409, "no profile is being taken; POST /start_profile begins one");
  stopping_ = exchange;
  engine_service_.run_between_steps([](Engine& engine) { engine.end_profile_range(); });
}

/// Called when the steps have been recorded: all that were asked for, or those up to stop().
void ProfileCapture::on_end() {
  state_ = State::changing;
  loop_.run_in_background([this, had_counters = collector_ != nullptr] {
    collector_.reset();  // gives the writer its last window
    has_counters_ = had_counters;
    const ProfileWriter::Stats stats = writer_->close();
    loop_.post([this, stats] { finish(stats); });
  });
}

void ProfileCapture::finish(const ProfileWriter::Stats& stats) {
  state_ = State::idle;
  writer_.reset();
  const std::string file = std::exchange(path_, {}).string();
  const std::shared_ptr<HttpExchange> exchange = std::exchange(stopping_, nullptr);
  if (exchange == nullptr) return log_end(file, stats);
  if (!stats.error.empty()) {
    answer_error(*exchange, ApiError(500, fmt::format("{} holds {} steps, {} could not be written: {}", file,
                                                      stats.written, stats.dropped, stats.error)));
    return;
  }
  nlohmann::ordered_json body{{"file", file}, {"steps", stats.written}, {"dropped", stats.dropped}};
  if (stats.dropped_lines > 0) body["dropped_lines"] = stats.dropped_lines;
  if (has_range_ && range_.error.empty()) body["kernels"] = range_.kernels;
  if (has_range_ && !range_.error.empty()) body["kernels_error"] = range_.error;
  if (has_counters_ && (counter_windows_ > 0 || counters_error_.empty()))
    body["counter_windows"] = counter_windows_;
  if (has_counters_ && !counters_error_.empty()) body["counters_error"] = counters_error_;
  exchange->respond({.body = dump_json(body)});
}

void ProfileCapture::log_end(const std::string& file, const ProfileWriter::Stats& stats) {
  log_.write(LogLevel::info, "profile",
             {{"file", file},
              {"steps", static_cast<int64_t>(stats.written)},
              {"dropped", static_cast<int64_t>(stats.dropped)},
              {"kernels", has_range_ ? range_.kernels : int64_t{0}}});
}

}  // namespace minfer
