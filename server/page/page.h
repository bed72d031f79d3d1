#pragma once

#include <span>
#include <string>
#include <string_view>

#include "server/routes/router.h"

namespace minfer {

/// A file of the page. All of server/page/, Chart.js as "chart.js" and its licence as "chart.js.txt" are inside the program.
struct PageFile {
  std::string_view name;  ///< e.g. "strip.js"
  std::string_view content_type;
  std::string_view content;
};
std::span<const PageFile> page_files();
/// The file of this name; an empty one if there is none.
PageFile page_file(std::string_view name);

/// GET / and the files of the live page. They need no key; the data that they show does. Clients may keep the files, but must ask each
/// time if they are still current.
void add_page_routes(Api& api);

/// The page as one file that needs no server and no network. Styles, scripts, Chart.js and its
/// licence are inside. `json`, a document of schema minfer.page/1, is the data that it shows.
std::string single_page_html(std::string_view json);

/// One script made of ES modules that import each other by "./NAME.js", beginning with the file `main`. Each becomes a function that gives
/// its exports, placed after the modules it imports, which do not import it in turn. An import or export is on a line of its own, as
/// `import { a, b } from "./c.js";` and `export` in front of a const, function or class. Throws Error if a file is missing.
std::string bundled_modules(const std::string& main);

}  // namespace minfer
