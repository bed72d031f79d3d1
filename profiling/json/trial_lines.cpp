#include "profiling/json/trial_lines.h"

#include <array>
#include <utility>

namespace minfer {
namespace {

constexpr std::array<std::pair<std::string_view, std::string KeptTrial::*>, 7> kTexts{
    {{"option", &KeptTrial::option},
     {"beside", &KeptTrial::beside},
     {"finding", &KeptTrial::finding},
     {"figure", &KeptTrial::figure},
     {"error", &KeptTrial::error},
     {"device", &KeptTrial::device},
     {"date", &KeptTrial::date}}};
constexpr std::array<std::pair<std::string_view, double KeptTrial::*>, 3> kEstimates{
    {{"estimated", &KeptTrial::estimated},
     {"estimated_from", &KeptTrial::estimated_from},
     {"estimated_to", &KeptTrial::estimated_to}}};
constexpr std::array<std::pair<std::string_view, double MeasuredGain::*>, 3> kGains{
    {{"median", &MeasuredGain::median}, {"least", &MeasuredGain::least}, {"most", &MeasuredGain::most}}};

}  // namespace

void write_trial(JsonText& json, const KeptTrial& trial) {
  for (const auto& [name, text] : kTexts)
    json.field(name, std::string_view(trial.*text));
  for (const auto& [name, share] : kEstimates)
    json.field(name, trial.*share, 4);
  for (const auto& [name, share] : kGains)
    json.field(name, trial.gain.*share, 4);
  json.field("turns", trial.gain.turns).field("fitted", trial.is_fitted);
}

void append_trial_line(std::string& out, const KeptTrial& trial) {
  JsonText json(out);
  json.open('{').field("schema", kTrialSchema);
  write_trial(json, trial);
  json.close('}');
  out += '\n';
}

KeptTrial trial_of(const JsonField& line) {
  KeptTrial trial{.is_fitted = line["fitted"].boolean()};
  for (const auto& [name, text] : kTexts)
    trial.*text = line[name].text();
  for (const auto& [name, share] : kEstimates)
    trial.*share = line[name].number();
  for (const auto& [name, share] : kGains)
    trial.gain.*share = line[name].saved_share();
  trial.gain.turns = line["turns"].count();
  return trial;
}

}  // namespace minfer
