#include "server/page/page_routes.h"

#include <functional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "server/page/page_files.h"

namespace minfer {
namespace {

/// Scripts, styles and requests of this server only, nothing inline, in nobody's frame.
constexpr const char* kContentPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

}  // namespace

void add_page_routes(Api& api) {
  for (const PageFile& file : page_files()) {
    const std::string tag = fmt::format("\"{:016x}\"", std::hash<std::string_view>{}(file.content));
    const HttpHeaders headers{{"etag", tag},
                              {"cache-control", "no-cache"},
                              {"content-security-policy", kContentPolicy},
                              {"x-content-type-options", "nosniff"},
                              {"referrer-policy", "no-referrer"}};
    const auto handler = [file, tag, headers](const std::shared_ptr<HttpExchange>& exchange) {
      if (exchange->request().header("if-none-match").find(tag) != std::string_view::npos) {
        return exchange->respond({.status = 304, .content_type = {}, .headers = headers});
      }
      exchange->respond({.content_type = std::string(file.content_type),
                         .body = std::string(file.content),
                         .headers = headers});
    };
    api.add("GET", file.name == "index.html" ? "/" : fmt::format("/page/{}", file.name), handler, true);
  }
}

}  // namespace minfer
