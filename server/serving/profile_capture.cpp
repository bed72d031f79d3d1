#include "server/serving/profile_capture.h"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include <fcntl.h>
#include <fmt/chrono.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "kernels/error.h"
#include "profiling/json/json_text.h"
#include "server/openai/json_body.h"
#include "server/openai/json_fields.h"
#include "server/serving/answer.h"

namespace minfer {
namespace {

ApiError conflict(std::string_view message) {
  return {409, "invalid_request_error", std::string(message)};
}

}  // namespace

ProfileDetail read_detail(std::string_view body) {
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos) return ProfileDetail::op;
  const nlohmann::ordered_json root = parse_json_body(body);
  UnknownFields unknown(false);
  JsonFields fields(root, {}, unknown);
  for (const char* name : {"file", "output_dir", "num_steps", "start_step", "profile_by_stage"}) {
    const nlohmann::ordered_json* value = fields.any(name);
    if (value != nullptr && *value != false)
      throw unsupported(name,
                        fmt::format("{}: not supported; a profile lasts until POST /stop_profile, and the "
                                    "replies name its file",
                                    name));
  }
  const std::string detail = fields.text("detail").value_or("op");
  if (detail != "op" && detail != "layer") throw wrong_value("detail", detail, "\"op\" or \"layer\"");
  return detail == "op" ? ProfileDetail::op : ProfileDetail::layer;
}

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

ProfileCapture::ProfileCapture(EventLoop& loop, Engine& engine, EngineService& engine_service, ServerLog& log,
                               ProfileHeader header, std::filesystem::path folder)
    : loop_(loop),
      engine_(engine),
      engine_service_(engine_service),
      log_(log),
      header_(std::move(header)),
      folder_(std::move(folder)) {}

ProfileCapture::~ProfileCapture() {
  if (!writer_) return;
  engine_.recorder().remove_sink(*writer_);
  const ProfileWriter::Stats stats = writer_->close();
  const std::string file = path_.string();
  log_.write(LogLevel::info, "profile",
             {{"file", std::string_view(file)},
              {"steps", static_cast<int64_t>(stats.written)},
              {"dropped", static_cast<int64_t>(stats.dropped)}});
}

void ProfileCapture::start(const std::shared_ptr<HttpExchange>& exchange) {
  if (state_ != State::idle) throw conflict("a profile is being taken; POST /stop_profile ends it");
  state_ = State::changing;
  loop_.run_in_background([this, exchange] {
    std::function<void()> then;
    const auto fail_with = [&](const ApiError& error) {
      then = [this, exchange, error] {
        state_ = State::idle;
        answer(*exchange, error);
      };
    };
    try {
      const ProfileDetail detail = read_detail(exchange->request().body);
      ProfileHeader header = header_;
      header.detail = detail;
      stamp_clocks(header);
      const std::filesystem::path path = create_profile_file(folder_);
      WriterOptions options;
      options.on_error = [this](const std::string& reason) {
        log_.write(LogLevel::warning, "the profile cannot be written",
                   {{"reason", std::string_view(reason)}});
      };
      auto writer = std::make_shared<ProfileWriter>(path, std::move(header), std::move(options));
      then = [this, exchange, writer, path, detail] { attach(exchange, writer, path, detail); };
    } catch (const ApiError& error) {
      fail_with(error);
    } catch (const std::exception& error) {
      fail_with(server_error(error.what()));
    }
    loop_.post([exchange, then = std::move(then)] {
      exchange->drop_body();
      then();
    });
  });
}

void ProfileCapture::attach(const std::shared_ptr<HttpExchange>& exchange,
                            std::shared_ptr<ProfileWriter> writer, std::filesystem::path path,
                            ProfileDetail detail) {
  writer_ = std::move(writer);
  path_ = std::move(path);
  engine_service_.run_between_steps([this, exchange, detail](Engine& engine) {
    engine.recorder().add_sink(*writer_);
    loop_.post([this, exchange, detail] {
      state_ = State::running;
      std::string body;
      JsonText json(body);
      json.open('{').field("file", path_.string()).field("detail", name(detail)).close('}');
      exchange->respond({.body = std::move(body)});
    });
  });
}

void ProfileCapture::stop(const std::shared_ptr<HttpExchange>& exchange) {
  if (state_ != State::running) throw conflict("no profile is being taken; POST /start_profile begins one");
  state_ = State::changing;
  engine_service_.run_between_steps([this, exchange](Engine& engine) {
    engine.recorder().remove_sink(*writer_);
    loop_.run_in_background([this, exchange] {
      const ProfileWriter::Stats stats = writer_->close();
      loop_.post([this, exchange, stats] { finish(*exchange, stats); });
    });
  });
}

void ProfileCapture::finish(HttpExchange& exchange, const ProfileWriter::Stats& stats) {
  state_ = State::idle;
  writer_.reset();
  const std::string file = std::exchange(path_, {}).string();
  if (!stats.error.empty()) {
    answer(exchange, server_error(fmt::format("{} holds {} steps, {} could not be written: {}", file,
                                              stats.written, stats.dropped, stats.error)));
    return;
  }
  std::string body;
  JsonText json(body);
  json.open('{').field("file", file).field("steps", stats.written).field("dropped", stats.dropped).close('}');
  exchange.respond({.body = std::move(body)});
}

}  // namespace minfer
