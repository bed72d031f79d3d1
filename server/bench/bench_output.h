#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "profiling/text/table.h"

namespace minfer {

double mean_of(const std::vector<double>& values);
double median_of(std::vector<double> values);
/// Standard deviation of a sample (divided by n - 1), as in llama-bench; 0 for fewer than two values.
double deviation_of(const std::vector<double>& values);
/// Standard deviation of a population (divided by n), as in numpy.std and vLLM's benchmark.
double population_deviation_of(const std::vector<double>& values);
/// Interpolated between ranks, as numpy.percentile; `share` 0.99 is p99. 0 if there are no values.
double percentile_of(std::vector<double> values, double share);

/// A value as a cell of a table: "-" if it is null, a fraction with two decimals, a text as it is.
std::string cell_of_json(const nlohmann::ordered_json& value);

/// Prints results in a format of `-o`: "table" and "md" show `table`, the others the objects (at least one) with the same fields.
void print_results(const nlohmann::ordered_json& objects, const Table& table, const std::string& format);

}  // namespace minfer
