// The server as a program, over an engine whose steps take a fixed time and compute nothing: for
// tests/checks/check_load_generator.py, whose figures then do not depend on the machine's other work.
#include <csignal>

#include <CLI/CLI.hpp>

#include "server/serving/server.h"
#include "tests/support/server/test_server.h"

namespace minfer::test {
namespace {

/// Lets steps begin at even times; a late step does not delay the later ones.
class Pace {
 public:
  explicit Pace(int step_ms) : step_(step_ms) {}

  void wait() {
    const auto now = std::chrono::steady_clock::now();
    next_ += step_;
    if (next_ < now) next_ = now + step_;  // after idling
    std::this_thread::sleep_until(next_);
  }

 private:
  std::chrono::milliseconds step_;
  std::chrono::steady_clock::time_point next_;
};

void serve(uint16_t port, int step_ms) {
  ScriptedServing serving;
  serving.engine.max_num_batched_tokens = 64;  // a prompt takes several steps
  serving.engine.enable_prefix_caching = false;
  serving.before_step = [pace = Pace(step_ms)](int64_t) mutable { pace.wait(); };
  serving.script = [letter = letter_token()](int64_t) { return letter; };
  serving.server.port = port;
  const std::unique_ptr<Engine> engine = make_scripted_engine(serving);
  ServerLog log(LogFormat::text, LogLevel::warning);
  EventLoop loop;
  Server server(loop, *engine, log, serving.server);
  loop.on_signals({SIGTERM, SIGINT}, [&](int) { server.shut_down(); });
  server.run();
}

}  // namespace
}  // namespace minfer::test

int main(int argc, char** argv) {
  CLI::App app{"a server whose model takes a fixed time a step"};
  uint16_t port = 0;
  int step_ms = 25;
  app.add_option("--port", port)->required();
  app.add_option("--step-ms", step_ms, "what a step takes")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  minfer::test::serve(port, step_ms);
}
