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
constexpr std::string_view kCacheSchema = "minfer.ceilings/2";
constexpr const char* kBeaten = "beaten";  // by an op since they were measured

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

// A number from a file that people may have edited.
int64_t number_at(const Json& machine, const char* key, int64_t most, int64_t otherwise) {
  const Json number = machine.value(key, Json());
  return number.is_number_integer() ? std::clamp<int64_t>(number.get<int64_t>(), 0, most) : otherwise;
}

std::optional<Ceilings> find_ceilings(const Json& machines, const std::string& key) {
  const auto found = machines.find(key);
  if (found == machines.end() || !found->is_object()) return std::nullopt;
  const Json read_gbps = found->value("read_gbps", Json());
  const Json gflops = found->value("gflops", Json());
  if (!read_gbps.is_number() || !gflops.is_number()) return std::nullopt;
  Ceilings ceilings{.read_gbps = read_gbps.get<double>(),
                    .gflops = gflops.get<double>(),
                    .runs = static_cast<int32_t>(number_at(*found, "runs", kMostRuns, 1)),
                    .disturbed_runs = static_cast<int32_t>(number_at(*found, "disturbed_runs", kMostRuns, 0)),
                    .measured_unix_s = number_at(*found, "measured_unix_s", kLatest, 0)};
  for (const auto& [name, unit] : kUnitCeilings) {
    const Json gflops_of_unit = found->value(name, Json());
    if (gflops_of_unit.is_number()) ceilings.*unit = gflops_of_unit.get<double>();
  }
  return ceilings.known() ? std::optional(ceilings) : std::nullopt;
}

// By way of a file of its own and a rename, so that a reader never sees half a cache. Failing is no harm: measured again.
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

Ceilings load_or_measure_ceilings(const std::string& key, const std::function<Ceilings()>& measure,
                                  const std::filesystem::path& cache_path) {
  const char* asked = nonempty_environment("MINFER_CEILINGS");
  if (asked != nullptr && std::string_view(asked) == "skip") return {};
  Json machines = cache_path.empty() ? Json::object() : read_cache(cache_path);
  Ceilings ceilings = find_ceilings(machines, key).value_or(Ceilings{});
  const bool is_enough =
      ceilings.tries() >= kMostRuns || (ceilings.runs >= kEnoughRuns && !machines[key].contains(kBeaten));
  if (ceilings.known() && is_enough) return ceilings;
  const Ceilings measured = measure();
  if (!measured.known()) return ceilings;
  ceilings.read_gbps = std::max(ceilings.read_gbps, measured.read_gbps);
  ceilings.gflops = std::max(ceilings.gflops, measured.gflops);
  (measured.disturbed_runs > 0 ? ceilings.disturbed_runs : ceilings.runs) += 1;
  ceilings.measured_unix_s = static_cast<int64_t>(std::time(nullptr));
  Json& kept = machines[key] = {{"read_gbps", ceilings.read_gbps},
                                {"gflops", ceilings.gflops},
                                {"runs", ceilings.runs},
                                {"disturbed_runs", ceilings.disturbed_runs},
                                {"measured_unix_s", ceilings.measured_unix_s}};
  for (const auto& [name, unit] : kUnitCeilings)
    kept[name] = ceilings.*unit = std::max(ceilings.*unit, measured.*unit);
  if (!cache_path.empty()) write_cache(cache_path, machines);
  return ceilings;
}

void measure_ceilings_again(const std::string& key, const std::filesystem::path& cache_path) {
  Json machines = cache_path.empty() ? Json::object() : read_cache(cache_path);
  if (!find_ceilings(machines, key)) return;
  machines[key][kBeaten] = true;
  write_cache(cache_path, machines);
}

}  // namespace minfer
