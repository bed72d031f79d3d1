#pragma once

#include <string>
#include <string_view>

#include "profiling/host/host_sample.h"
#include "profiling/json/json_field.h"

namespace minfer {

inline constexpr std::string_view kHostSchema = "minfer.host/1";

/// Appends a line of JSON (schema minfer.host/1, see host.schema.json), newline included.
void append_host_line(std::string& out, const HostSample& sample);
/// Reads what that appends. Throws FileError, naming the field.
HostSample host_sample_of(const JsonField& line);

}  // namespace minfer
