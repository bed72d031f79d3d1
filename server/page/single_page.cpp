#include "server/page/single_page.h"

#include <regex>
#include <set>
#include <sstream>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/base/error.h"
#include "server/page/page_files.h"

namespace minfer {
namespace {

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

void replace(std::string& text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) fail("index.html has no {}", from);
  text.replace(at, from.size(), to);
}

/// Escapes a text, so that nothing in it ends its element.
std::string without_tags(std::string_view text, std::string_view less_than) {
  std::string escaped;
  for (const char c : text) {
    c == '<' ? escaped += less_than : escaped += c;
  }
  return escaped;
}

/// The icon's `<`, `>`, `#` and quotes have a meaning in an attribute's URL.
std::string url_encoded(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    std::string_view("<>#\"'% \n").find(c) == std::string_view::npos
        ? encoded += c
        : encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return encoded;
}

}  // namespace

std::string bundled_modules(const std::string& main) {
  Bundle bundle;
  bundle.add(main);
  return bundle.script;
}

std::string single_page_html(std::string_view json) {
  std::string html(page_file("index.html").content);
  replace(html, "<link rel=\"icon\" href=\"page/icon.svg\" type=\"image/svg+xml\">",
          fmt::format("<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
                      "  <link rel=\"icon\" href=\"data:image/svg+xml,{}\">",
                      kOfflinePolicy, url_encoded(page_file("icon.svg").content)));
  replace(html, "<link rel=\"stylesheet\" href=\"page/page.css\">",
          fmt::format("<style>\n{}</style>", page_file("page.css").content));
  replace(html, "<script src=\"page/chart.js\" defer></script>", "");
  replace(html, "<script src=\"page/page.js\" type=\"module\"></script>", "");
  replace(html, "<p>Charts: Chart.js, <a href=\"page/chart.js.txt\">MIT licence</a></p>",
          fmt::format("<details><summary>Charts: Chart.js, MIT licence</summary><pre>{}</pre></details>",
                      without_tags(page_file("chart.js.txt").content, "&lt;")));
  // Behind the page's elements, in the order in which they run.
  replace(
      html, "</body>",
      fmt::format("<script type=\"application/json\" id=\"data\">{}</script>\n"
                  "<script>\n{}</script>\n<script>\n\"use strict\";\n{}</script>\n</body>",
                  without_tags(json, "\\u003c"), page_file("chart.js").content, bundled_modules("page.js")));
  return html;
}

}  // namespace minfer
