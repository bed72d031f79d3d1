#pragma once

#include <string>
#include <string_view>

#include "profiling/json/json_field.h"
#include "profiling/record/rank_step.h"

namespace minfer {

inline constexpr std::string_view kRankSchema = "minfer.rank/1";

/// Appends a line of JSON (schema minfer.rank/1, see rank.schema.json), newline included.
void append_rank_line(std::string& out, const RankStep& step);
/// Reads what that appends. Throws FileError, naming the field.
RankStep rank_step_of(const JsonField& line);

}  // namespace minfer
