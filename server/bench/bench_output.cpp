#include "server/bench/bench_output.h"

#include <fmt/format.h>

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

Table table_of_fields(const Json& objects) {
  Table fields{.title = "", .columns = {}, .rows = {}};
  for (const auto& [field, value] : objects.front().items())
    fields.columns.push_back(field);
  for (const Json& object : objects) {
    std::vector<std::string>& row = fields.rows.emplace_back();
    for (const Json& value : object)
      row.push_back(value.is_string() ? value.get<std::string>() : value.dump());
  }
  return fields;
}

}  // namespace

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

}  // namespace minfer
