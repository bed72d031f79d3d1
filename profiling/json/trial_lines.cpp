#include "profiling/json/line_members.h"

namespace minfer {
namespace {

constexpr auto kSavedShare = &JsonField::saved_share;

template <class Json>
void trial_members(Json& json, Is<KeptTrial> auto& trial) {
  json.member("option", trial.option).member("beside", trial.beside);
  json.member("finding", trial.finding).member("figure", trial.figure);
  json.member("error", trial.error).member("device", trial.device);
  json.member("date", trial.date).member("estimated", trial.estimated, kNumber, 4);
  json.member("estimated_from", trial.estimated_from, kNumber, 4);
  json.member("estimated_to", trial.estimated_to, kNumber, 4);
  json.member("median", trial.gain.median, kSavedShare, 4).member("least", trial.gain.least, kSavedShare, 4);
  json.member("most", trial.gain.most, kSavedShare, 4);
  json.member("turns", trial.gain.turns).member("fitted", trial.is_fitted);
}

}  // namespace

template <class Json>
void members(Json& json, Is<KeptTrial> auto& trial) {
  json.told("schema", kTrialSchema);
  trial_members(json, trial);
}

void write_trial(JsonText& json, const KeptTrial& trial) {
  MemberWriter writer(json);
  trial_members(writer, trial);
}

template struct JsonOf<KeptTrial>;

}  // namespace minfer
