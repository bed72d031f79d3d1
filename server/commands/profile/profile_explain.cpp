#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "profiling/findings/evidence_reader.h"
#include "profiling/json/json_field.h"
#include "server/bench/http_client.h"
#include "server/commands/args/options.h"
#include "server/commands/args/profile_options.h"
#include "server/commands/profile/profile_commands.h"
#include "server/commands/profile/profile_try.h"
#include "server/terminal/terminal.h"
#include "server/tune/trial_session.h"

namespace minfer {
namespace {

constexpr int64_t kPatienceNs = 30'000'000'000;

struct ExplainArguments {
  std::string path;
  std::string url;
  int64_t last = 1'000;
  std::string format = "table";
  bool all = false;
  bool try_advice = false;
  std::string budget = "120s";
  std::string model;
  std::optional<double> fail_above;  ///< e.g. 0.03
};

/// The whole answer to one request.
class SummaryAnswer final : public HttpResponseHandler {
 public:
  explicit SummaryAnswer(HttpClient& client) : client_(client) {}
  void on_status(int code) override { status = code; }
  void on_body(std::string_view bytes, int64_t) override { body += bytes; }
  void on_end(const std::string& reason) override {
    error = reason;
    client_.stop();
  }

  int status = 0;
  std::string body;
  std::string error = "no answer within 30 s";

 private:
  HttpClient& client_;
};

/// A running server's summary of its last steps.
Diagnosis diagnosis_of_server(const ExplainArguments& arguments) {
  HttpClient client(arguments.url);
  SummaryAnswer answer(client);
  std::vector<std::string> headers;
  if (const char* key = std::getenv("MINFER_API_KEY"); key != nullptr)
    headers.push_back(fmt::format("Authorization: Bearer {}", key));
  client.send({fmt::format("/profile/summary?last={}", arguments.last), headers}, answer);
  client.run_until(now_ns() + kPatienceNs);
  if (!answer.error.empty()) fail("{}: {}", arguments.url, answer.error);
  if (answer.status != 200)
    fail("{}: status {}: {}", arguments.url, answer.status, answer.body.substr(0, 200));
  simdjson::dom::parser parser;
  simdjson::dom::element json;
  if (parser.parse(answer.body).get(json) != simdjson::SUCCESS)
    fail("{}: the answer is no valid JSON", arguments.url);
  simdjson::dom::element report;
  if (json["report"].get(report) != simdjson::SUCCESS || report.is_null())
    fail("{}: the server has run no step yet", arguments.url);
  const JsonField field(report, arguments.url);
  return diagnosis_of(field["findings"]);
}

Diagnosis diagnosis_of_file(const std::string& path) {
  require_profile(path);
  EvidenceReader reader;
  const std::string note = read_profile(path, reader);
  if (!note.empty()) print_notice(note + "\n");
  return diagnose(reader.evidence());
}

std::string rendered(const Diagnosis& diagnosis, const std::string& format, bool all) {
  if (format == "md") return findings_markdown(diagnosis, all);
  if (format == "table") return findings_text(diagnosis, is_terminal(stdout), all);
  std::string text;
  JsonText json(text);
  write_findings(json, diagnosis);
  return text + "\n";
}

void run_explain(const ExplainArguments& arguments) {
  if (arguments.path.empty() == arguments.url.empty()) fail("profile explain: give either FILE or --url");
  const Diagnosis diagnosis =
      arguments.url.empty() ? diagnosis_of_file(arguments.path) : diagnosis_of_server(arguments);
  if (arguments.try_advice) {
    const double budget_s = seconds_of("--budget", arguments.budget);
    if (arguments.format != "json") print_output(rendered(diagnosis, arguments.format, arguments.all) + "\n");
    print_output(try_advice(diagnosis, {.profile = arguments.path,
                                        .model = arguments.model,
                                        .budget_s = budget_s,
                                        .format = arguments.format}));
  } else {
    print_output(rendered(diagnosis, arguments.format, arguments.all));
  }
  if (arguments.fail_above && diagnosis.worst() > *arguments.fail_above) {
    fail("{} is worth {:.2f} %, more than {:.2f} %", diagnosis.findings.front().rule,
         100.0 * diagnosis.worst(), 100.0 * *arguments.fail_above);
  }
}

}  // namespace

void add_explain_command(CLI::App& profile) {
  CLI::App* explain =
      profile.add_subcommand("explain", "Why a run was not faster, and what to try: findings, worst first");
  const auto arguments = std::make_shared<ExplainArguments>();
  explain->add_option("file", arguments->path, "Profile file, as --profile-out writes it")
      ->option_text("FILE");
  CLI::Option* url =
      explain
          ->add_option("--url", arguments->url,
                       "Ask the server at http://HOST:PORT instead (its key: MINFER_API_KEY). It knows its "
                       "last steps, and the last 4,096 of the requests that have ended since")
          ->option_text("URL");
  explain->add_option("--last", arguments->last, "Steps of the server to look at")
      ->check(CLI::PositiveNumber)
      ->needs(url)
      ->option_text(fmt::format("N (default {})", arguments->last));
  explain->add_option("-o,--output", arguments->format, "How to print it (default table)")
      ->check(one_of({"table", "json", "md"}))
      ->option_text("table|json|md");
  explain->add_flag("--all", arguments->all, "Also show findings of 5 % and less (JSON always has them)");
  CLI::Option* try_it =
      explain
          ->add_flag("--try", arguments->try_advice,
                     "Replay the recorded load with and without each option that findings advise, each run "
                     "in a process of its own, and show the gain of each option")
          ->excludes(url);
  explain->add_option("--budget", arguments->budget, "Approximate time that --try may take")
      ->needs(try_it)
      ->option_text("TIME [120s]");
  explain->add_option("-m,--model", arguments->model, "Model that --try runs (default: the record's)")
      ->needs(try_it)
      ->option_text("MODEL");
  add_fail_above(*explain, arguments->fail_above, "Exit with code 1 if a finding is worth more, e.g. 5%");
  explain->footer(
      "Examples:\n"
      "  minfer bench -p 0 -n 16 --parallel 8 --profile-out steps.jsonl\n"
      "  minfer profile explain steps.jsonl\n"
      "  minfer profile explain steps.jsonl -o md --fail-above 95%\n"
      "  minfer profile explain steps.jsonl --try --budget 60s");
  explain->callback([arguments] { run_explain(*arguments); });
}

}  // namespace minfer
