#pragma once

#include <string>
#include <string_view>

#include "profiling/findings/kept_trial.h"
#include "profiling/json/json_field.h"
#include "profiling/json/json_text.h"

namespace minfer {

inline constexpr std::string_view kTrialSchema = "minfer.trial/1";

/// Appends a line of JSON (schema minfer.trial/1, see trial.schema.json), newline included.
void append_trial_line(std::string& out, const KeptTrial& trial);
/// The same as members of an object.
void write_trial(JsonText& json, const KeptTrial& trial);
/// Reads what these write. Throws FileError, naming the field.
KeptTrial trial_of(const JsonField& line);

}  // namespace minfer
