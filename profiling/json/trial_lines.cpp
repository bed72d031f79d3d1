#include <array>
#include <utility>

#include "profiling/json/line_members.h"

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

template <class Json>
void members(Json& json, Is<KeptTrial> auto& trial) {
  for (const auto& [name, text] : kTexts)
    json.member(name, trial.*text, kText);
  for (const auto& [name, share] : kEstimates)
    json.member(name, trial.*share, kNumber, 4);
  for (const auto& [name, share] : kGains)
    json.member(name, trial.gain.*share, &JsonField::saved_share, 4);
  json.member("turns", trial.gain.turns, kCount).member("fitted", trial.is_fitted, kBoolean);
}

void write_trial(JsonText& json, const KeptTrial& trial) {
  MemberWriter writer(json);
  members(writer, trial);
}

template void append_line(std::string&, const KeptTrial&);
template KeptTrial line_of(const JsonField&);

}  // namespace minfer
