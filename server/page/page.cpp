#include "server/page/page.h"

#include <algorithm>
#include <functional>
#include <regex>
#include <set>
#include <sstream>
#include <vector>

#include <boost/algorithm/string/replace.hpp>
#include <curl/curl.h>
#include <fmt/ranges.h>

#include "kernels/base/error.h"
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

/// A policy that allows only the contents of the file.
constexpr std::string_view kOfflinePolicy =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:";

/// Puts modules together, each once, after the modules that it imports.
struct Bundle {
  std::string script;
  std::set<std::string> done;

  void add(const std::string& file) {
    static const std::regex kImport(R"re(import (\{[^}]*\}) from "\./((\w+)\.js)";)re");
    static const std::regex kExport(R"(export ((?:async )?(?:const|function|class) (\w+).*))");
    if (!done.insert(file).second) return;
    const std::string_view text = page_file(file).content;
    if (text.empty()) fail("the page has no file {}", file);
    std::istringstream lines{std::string(text)};
    std::string body;
    std::vector<std::string> exported;
    std::smatch match;
    for (std::string line; std::getline(lines, line);) {
      if (std::regex_match(line, match, kImport)) {
        add(match[2]);
        body += fmt::format("const {} = module_{};\n", match[1].str(), match[3].str());
      } else if (std::regex_match(line, match, kExport)) {
        exported.push_back(match[2]);
        body += match[1].str() + "\n";
      } else {
        body += line + "\n";
      }
    }
    script += fmt::format("const module_{} = (() => {{\n{}return {{ {} }};\n}})();\n",
                          file.substr(0, file.find('.')), body, fmt::join(exported, ", "));
  }
};

void replace_part(std::string& text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) fail("index.html has no {}", from);
  text.replace(at, from.size(), to);
}

}  // namespace

std::span<const PageFile> page_files() {
  return kFiles;
}

PageFile page_file(std::string_view name) {
  const auto found = std::ranges::find(kFiles, name, &PageFile::name);
  return found == std::end(kFiles) ? PageFile() : *found;
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

std::string bundled_modules(const std::string& main) {
  Bundle bundle;
  bundle.add(main);
  return bundle.script;
}

std::string single_page_html(std::string_view json) {
  std::string html(page_file("index.html").content);
  const std::string_view icon = page_file("icon.svg").content;
  const std::unique_ptr<char, decltype(&curl_free)> escaped(
      curl_easy_escape(nullptr, icon.data(), static_cast<int>(icon.size())), curl_free);
  replace_part(html, "<link rel=\"icon\" href=\"page/icon.svg\" type=\"image/svg+xml\">",
               fmt::format("<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
                           "  <link rel=\"icon\" href=\"data:image/svg+xml,{}\">",
                           kOfflinePolicy, escaped.get()));
  replace_part(html, "<link rel=\"stylesheet\" href=\"page/page.css\">",
               fmt::format("<style>\n{}</style>", page_file("page.css").content));
  replace_part(html, "<script src=\"page/chart.js\" defer></script>", "");
  replace_part(html, "<script src=\"page/page.js\" type=\"module\"></script>", "");
  replace_part(
      html, "<p>Charts: Chart.js, <a href=\"page/chart.js.txt\">MIT licence</a></p>",
      fmt::format("<details><summary>Charts: Chart.js, MIT licence</summary><pre>{}</pre></details>",
                  boost::replace_all_copy(std::string(page_file("chart.js.txt").content), "<", "&lt;")));
  const std::string data =
      boost::replace_all_copy(std::string(json), "<", "\\u003c");  // so nothing in it ends its element
  // Behind the page's elements, in the order in which they run.
  replace_part(html, "</body>",
               fmt::format("<script type=\"application/json\" id=\"data\">{}</script>\n"
                           "<script>\n{}</script>\n<script>\n\"use strict\";\n{}</script>\n</body>",
                           data, page_file("chart.js").content, bundled_modules("page.js")));
  return html;
}

}  // namespace minfer
