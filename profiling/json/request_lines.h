#pragma once

#include <string>
#include <string_view>

#include "profiling/json/json_field.h"
#include "profiling/record/ended_request.h"

namespace minfer {

inline constexpr std::string_view kRequestSchema = "minfer.request/1";

/// Appends a line of JSON (schema minfer.request/1, see request.schema.json), newline included.
void append_request_line(std::string& out, const EndedRequest& request);
/// Reads what that appends. Throws FileError, naming the field.
EndedRequest request_of(const JsonField& line);

}  // namespace minfer
