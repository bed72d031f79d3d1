#include "server/page/single_page.h"

#include <algorithm>
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
class Bundle {
 public:
  void add(std::string_view file) {
    if (std::ranges::find(done_, file) != done_.end()) return;
    if (std::ranges::find(open_, file) != open_.end()) fail("{} imports itself, by way of others", file);
    open_.push_back(file);
    std::string_view text = page_file(file).content;
    if (text.empty()) fail("the page has no file {}", file);
    std::string body;
    std::vector<std::string_view> exported;
    while (!text.empty()) {
      const std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(text.size(), line.size() + 1));
      if (line.starts_with("import ")) {
        body += import_of(line);
      } else if (line.starts_with("export ")) {
        exported.push_back(name_of(line));
        body += line.substr(std::string_view("export ").size());
      } else {
        body += line;
      }
      body += '\n';
    }
    open_.pop_back();
    done_.push_back(file);
    script_ += fmt::format("const {} = (() => {{\n{}return {{ {} }};\n}})();\n", variable(file), body,
                           fmt::join(exported, ", "));
  }
  std::string take() { return std::move(script_); }

 private:
  static std::string variable(std::string_view file) {
    return fmt::format("module_{}", file.substr(0, file.find('.')));
  }
  /// import { a, b } from "./c.js"; -> const { a, b } = module_c;
  std::string import_of(std::string_view line) {
    const size_t open = line.find('{'), close = line.find("} from \"./");
    if (open == std::string_view::npos || close == std::string_view::npos || !line.ends_with("\";"))
      fail("no import of the page: {}", line);
    const size_t begin = close + std::string_view("} from \"./").size();
    const std::string_view file = line.substr(begin, line.size() - begin - std::string_view("\";").size());
    add(file);
    return fmt::format("const {} = {};", line.substr(open, close + 1 - open), variable(file));
  }
  /// The name behind `export const`, `export function`, `export async function` or `export class`.
  static std::string_view name_of(std::string_view line) {
    std::string_view rest = line;
    for (const std::string_view word : {"export ", "async ", "const ", "function ", "class "}) {
      if (rest.starts_with(word)) rest.remove_prefix(word.size());
    }
    const std::string_view name = rest.substr(
        0, rest.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"));
    if (name.empty()) fail("no export of the page: {}", line);
    return name;
  }

  std::string script_;
  std::vector<std::string_view> done_;
  std::vector<std::string_view> open_;  ///< being read, each imported by the one before
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

/// A script element; "</" within it, which only texts and comments hold, would end it.
std::string script(std::string_view code) {
  if (code.find("</script") != std::string_view::npos) fail("a script of the page holds </script");
  return fmt::format("<script>\n{}</script>", code);
}

}  // namespace

std::string bundled_modules(std::string_view main) {
  Bundle bundle;
  bundle.add(main);
  return bundle.take();
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
  replace(html, "</body>",
          fmt::format("<script type=\"application/json\" id=\"data\">{}</script>\n{}\n{}\n</body>",
                      without_tags(json, "\\u003c"), script(page_file("chart.js").content),
                      script("\"use strict\";\n" + bundled_modules("page.js"))));
  return html;
}

}  // namespace minfer
