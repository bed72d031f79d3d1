#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <optional>
#include <system_error>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "profiling/record/ceilings.h"
#include "profiling/record/machine.h"

namespace minfer {
namespace {

using Json = nlohmann::json;

constexpr int64_t kLatest = 250'000'000'000;  // seconds: the year 9892
constexpr std::string_view kCacheSchema = "minfer.ceilings/1";

const char* nonempty_environment(const char* variable) {
  const char* content = std::getenv(variable);
  return content != nullptr && *content != '\0' ? content : nullptr;
}

// The cache's content, an object by key; empty if the file is missing or not ours.
Json read_cache(const std::filesystem::path& path) {
  std::ifstream file(path);
  const Json content = Json::parse(file, nullptr, false);
  if (!content.is_object() || content.value("schema", Json()) != kCacheSchema) return Json::object();
  const auto machines = content.find("machines");
  return machines != content.end() && machines->is_object() ? *machines : Json::object();
}

// Of a file that people may have written in: at least 1.
int64_t number_at(const Json& machine, const char* key, int64_t most) {
  const Json number = machine.value(key, Json());
  return number.is_number_integer() ? std::clamp<int64_t>(number.get<int64_t>(), 1, most) : 1;
}

std::optional<Ceilings> find_ceilings(const Json& machines, const std::string& key) {
  const auto found = machines.find(key);
  if (found == machines.end() || !found->is_object()) return std::nullopt;
  const Json read_gbps = found->value("read_gbps", Json());
  const Json gflops = found->value("gflops", Json());
  if (!read_gbps.is_number() || !gflops.is_number()) return std::nullopt;
  const Json fp8_gflops = found->value("fp8_gflops", Json());
  const Ceilings ceilings{.read_gbps = read_gbps.get<double>(),
                          .gflops = gflops.get<double>(),
                          .fp8_gflops = fp8_gflops.is_number() ? fp8_gflops.get<double>() : 0.0,
                          .runs = static_cast<int32_t>(number_at(*found, "runs", kEnoughRuns)),
                          .measured_unix_s = number_at(*found, "measured_unix_s", kLatest)};
  return ceilings.known() ? std::optional(ceilings) : std::nullopt;
}

// By way of a file of its own and a rename, so that a reader never sees half a cache. Failing is no harm:
// measured again.
void write_cache(const std::filesystem::path& path, const Json& machines) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  const std::filesystem::path draft = path.string() + "." + std::to_string(getpid());
  bool complete = false;
  {
    std::ofstream file(draft);
    file << Json{{"schema", kCacheSchema}, {"machines", machines}}.dump(1, ' ', true,
                                                                        Json::error_handler_t::replace)
         << '\n';
    complete = file.flush().good();
  }
  if (complete) std::filesystem::rename(draft, path, error);
  std::filesystem::remove(draft, error);
}

}  // namespace

std::filesystem::path ceilings_cache_path() {
  if (const char* cache = nonempty_environment("XDG_CACHE_HOME")) {
    return std::filesystem::path(cache) / "minfer" / "ceilings.json";
  }
  if (const char* home = nonempty_environment("HOME")) {
    return std::filesystem::path(home) / ".cache" / "minfer" / "ceilings.json";
  }
  return {};
}

Ceilings load_or_measure_ceilings(const std::string& key, bool fp8, const std::function<Ceilings()>& measure,
                                  const std::filesystem::path& cache_path) {
  const char* wanted = nonempty_environment("MINFER_CEILINGS");
  if (wanted != nullptr && std::string_view(wanted) == "skip") return {};
  Json machines = cache_path.empty() ? Json::object() : read_cache(cache_path);
  Ceilings ceilings = find_ceilings(machines, key).value_or(Ceilings{});
  if (!fp8) ceilings.fp8_gflops = 0.0;
  const bool misses_fp8 = fp8 && ceilings.fp8_gflops <= 0.0;
  if (ceilings.known() && ceilings.runs >= kEnoughRuns && !misses_fp8) return ceilings;
  const Ceilings measured = measure();
  if (!measured.known()) return ceilings;
  ceilings = {.read_gbps = std::max(ceilings.read_gbps, measured.read_gbps),
              .gflops = std::max(ceilings.gflops, measured.gflops),
              .fp8_gflops = std::max(ceilings.fp8_gflops, measured.fp8_gflops),
              .runs = ceilings.runs + 1,
              .measured_unix_s = static_cast<int64_t>(std::time(nullptr))};
  if (!cache_path.empty()) {
    Json& kept = machines[key];
    if (!kept.is_object()) kept = Json::object();
    kept.update({{"read_gbps", ceilings.read_gbps},
                 {"gflops", ceilings.gflops},
                 {"runs", ceilings.runs},
                 {"measured_unix_s", ceilings.measured_unix_s}});
    if (ceilings.fp8_gflops > 0.0) kept["fp8_gflops"] = ceilings.fp8_gflops;
    write_cache(cache_path, machines);
  }
  return ceilings;
}

}  // namespace minfer
