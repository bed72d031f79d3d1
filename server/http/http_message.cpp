#include "server/http/http_message.h"

#include <algorithm>

#include "server/http/http_url.h"

namespace minfer {
std::string_view HttpRequest::header(std::string_view lower_case_name) const {
  const auto found = std::ranges::find(headers, lower_case_name, &HttpHeaders::value_type::first);
  return found == headers.end() ? std::string_view{} : std::string_view(found->second);
}

std::string HttpRequest::query_value(std::string_view name) const {
  std::string_view rest = query;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const size_t equals = item.find('=');
    if (item.substr(0, equals) != name) continue;
    if (equals == std::string_view::npos) return {};
    std::string value(item.substr(equals + 1));
    std::ranges::replace(value, '+', ' ');  // as forms write it
    return percent_decoded(value);
  }
  return {};
}

}  // namespace minfer
