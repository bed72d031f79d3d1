#include "server/bench/bench_output.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

Table table_of_fields(const Json& objects) {
  Table fields;
  for (const auto& [field, value] : objects.front().items())
    fields.columns.push_back(field);
  for (const Json& object : objects) {
    std::vector<std::string>& row = fields.rows.emplace_back();
    for (const Json& value : object)
      row.push_back(value.is_string() ? value.get<std::string>() : value.dump());
  }
  return fields;
}

/// Standard deviation with this divisor.
double deviation(const std::vector<double>& values, size_t divisor) {
  const double mean = mean_of(values);
  double squares = 0.0;
  for (double value : values)
    squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(std::max<size_t>(divisor, 1)));
}

}  // namespace

std::string cell_of_json(const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_float() ? fmt::format("{:.2f}", value.get<double>()) : value.dump();
}

void print_results(const Json& objects, const Table& table, const std::string& format) {
  if (format == "json") fmt::print("{}\n", objects.dump(2, ' ', false, Json::error_handler_t::replace));
  if (format == "jsonl") {
    for (const Json& object : objects)
      fmt::print("{}\n", object.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  if (format == "table") fmt::print("{}", text_table(table, 120));
  if (format == "md") fmt::print("{}", markdown_table(table));
  if (format == "csv") fmt::print("{}", csv_table(table_of_fields(objects)));
}

double mean_of(const std::vector<double>& values) {
  return values.empty()
             ? 0.0
             : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double median_of(std::vector<double> values) {
  return percentile_of(std::move(values), 0.5);
}

double deviation_of(const std::vector<double>& values) {
  return deviation(values, values.size() - (values.empty() ? 0 : 1));
}

double population_deviation_of(const std::vector<double>& values) {
  return deviation(values, values.size());
}

double percentile_of(std::vector<double> values, double share) {
  if (values.empty()) return 0.0;
  std::ranges::sort(values);
  const double rank = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, values.size() - 1);
  return std::lerp(values[below], values[above], rank - static_cast<double>(below));
}

}  // namespace minfer
