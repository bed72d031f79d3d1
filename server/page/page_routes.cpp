#include "server/page/page_routes.h"

#include <array>
#include <functional>
#include <string>
#include <string_view>

#include <fmt/format.h>

// A file's bytes become read-only data of the program, from page_NAME_begin to page_NAME_end. CMake gives the
// paths.
#define MINFER_EMBED(name, path)           \
  asm(".section .rodata\n"                 \
      "page_" #name                        \
      "_begin:\n"                          \
      ".incbin \"" path                    \
      "\"\n"                               \
      "page_" #name                        \
      "_end:\n"                            \
      ".byte 0\n"                          \
      ".previous\n");                      \
  extern "C" {                             \
  extern const char page_##name##_begin[]; \
  extern const char page_##name##_end[];   \
  }

MINFER_EMBED(index, MINFER_PAGE_FOLDER "/index.html")
MINFER_EMBED(style, MINFER_PAGE_FOLDER "/page.css")
MINFER_EMBED(script, MINFER_PAGE_FOLDER "/page.js")
MINFER_EMBED(charts, MINFER_PAGE_FOLDER "/charts.js")
MINFER_EMBED(icon, MINFER_PAGE_FOLDER "/icon.svg")
MINFER_EMBED(chart_library, MINFER_CHART_LIBRARY)
MINFER_EMBED(chart_licence, MINFER_CHART_LICENCE)

namespace minfer {
namespace {

constexpr const char* kHtml = "text/html; charset=utf-8";
constexpr const char* kScript = "text/javascript; charset=utf-8";

/// Scripts, styles and requests of this server only, nothing inline, in nobody's frame.
constexpr const char* kContentPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

struct PageFile {
  const char* path;
  const char* content_type;
  std::string_view content;
};

const std::array<PageFile, 7>& page_files() {
  static const std::array<PageFile, 7> files{{
      {"/", kHtml, {page_index_begin, page_index_end}},
      {"/page/page.css", "text/css; charset=utf-8", {page_style_begin, page_style_end}},
      {"/page/page.js", kScript, {page_script_begin, page_script_end}},
      {"/page/charts.js", kScript, {page_charts_begin, page_charts_end}},
      {"/page/icon.svg", "image/svg+xml", {page_icon_begin, page_icon_end}},
      {"/page/chart.js", kScript, {page_chart_library_begin, page_chart_library_end}},
      {"/page/chart.js.txt", "text/plain; charset=utf-8", {page_chart_licence_begin, page_chart_licence_end}},
  }};
  return files;
}

}  // namespace

void add_page_routes(Api& api) {
  for (const PageFile& file : page_files()) {
    const std::string tag = fmt::format("\"{:016x}\"", std::hash<std::string_view>{}(file.content));
    const HttpHeaders headers{{"etag", tag},
                              {"cache-control", "no-cache"},
                              {"content-security-policy", kContentPolicy},
                              {"x-content-type-options", "nosniff"},
                              {"referrer-policy", "no-referrer"}};
    const auto handler = [&file, tag, headers](const std::shared_ptr<HttpExchange>& exchange) {
      if (exchange->request().header("if-none-match").find(tag) != std::string_view::npos) {
        return exchange->respond({.status = 304, .content_type = {}, .headers = headers});
      }
      exchange->respond(
          {.content_type = file.content_type, .body = std::string(file.content), .headers = headers});
    };
    api.add("GET", file.path, handler, true);
  }
}

}  // namespace minfer
