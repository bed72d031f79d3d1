#include <unordered_map>

#include "models/chat/jinja/builtins/filter_table.h"

namespace minfer::jinja {

Filter find_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Filter> filters = [] {
    std::unordered_map<std::string_view, Filter> table;
    for (const FilterEntries& entries :
         {text_filters(), number_filters(), sequence_filters(), selection_filters()})
      table.insert(entries.begin(), entries.end());
    return table;
  }();
  const auto found = filters.find(name);
  return found == filters.end() ? nullptr : found->second;
}

}  // namespace minfer::jinja
