#include "server/serving/completion/ignored_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace minfer {
namespace {

constexpr size_t kMostLogged = 256;

}  // namespace

void IgnoredFields::tell(HttpExchange& exchange, const std::vector<std::string>& names) {
  if (names.empty()) return;
  exchange.add_header("x-minfer-ignored-fields", fmt::format("{}", fmt::join(names, ", ")));
  std::vector<std::string> news;
  for (const std::string& name : names)
    if (logged_.size() < kMostLogged && logged_.insert(name).second) news.push_back(name);
  if (news.empty()) return;
  const std::string fields = fmt::format("{}", fmt::join(news, ","));
  log_.write(LogLevel::warning,
             "fields are ignored: this server does not know them, or the chat template does not use them",
             {{"fields", std::string_view(fields)}, {"id", std::string_view(exchange.request().id)}});
}

}  // namespace minfer
