#include "server/page/page_files.h"

#include <algorithm>
#include <functional>
#include <string>

#include <fmt/format.h>

#include "server/http/embedded_files.h"

#define MINFER_EMBEDDED_FILE MINFER_EMBED_BYTES
#include MINFER_PAGE_LIST
#undef MINFER_EMBEDDED_FILE

namespace minfer {
namespace {

std::string_view content_type_of(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  if (name.ends_with(".txt")) return "text/plain; charset=utf-8";
  return "text/javascript; charset=utf-8";
}

#define MINFER_EMBEDDED_FILE(identifier, name, path) \
  {name, content_type_of(name), MINFER_EMBEDDED_BYTES(identifier)},
const PageFile kFiles[] = {
#include MINFER_PAGE_LIST
};
#undef MINFER_EMBEDDED_FILE

/// Scripts, styles and requests of this server only, nothing inline, in nobody's frame.
constexpr const char* kContentPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

}  // namespace

std::span<const PageFile> page_files() {
  return kFiles;
}

PageFile page_file(std::string_view name) {
  const auto found = std::ranges::find(page_files(), name, &PageFile::name);
  return found == page_files().end() ? PageFile() : *found;
}

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
