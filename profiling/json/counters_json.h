#pragma once

#include <string>

#include "profiling/counters/counter_window.h"
#include "profiling/json/json_field.h"

namespace minfer {

/// Appends a line of JSON (schema minfer.counters/1, see counters.schema.json), newline included.
void append_counters_line(std::string& out, const CounterWindow& window);

/// What such a line says. Fields it does not know are passed over. Throws FileError.
CounterWindow read_counters(const JsonField& line);

}  // namespace minfer
