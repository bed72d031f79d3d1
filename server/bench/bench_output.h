#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "profiling/report/text/table.h"

namespace minfer {

/// Prints results in a format of `-o`: "table" and "md" show `table`; "json", "jsonl" and "csv" the objects
/// of the array, which have the same fields, at least one.
void print_results(const nlohmann::ordered_json& objects, const Table& table, const std::string& format);

}  // namespace minfer
