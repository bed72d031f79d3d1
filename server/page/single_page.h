#pragma once

#include <string>
#include <string_view>

namespace minfer {

/// The page as one file that needs no server and no network. Styles, scripts, Chart.js and its
/// licence are inside. `json`, a document of schema minfer.page/1, is the data that it shows.
std::string single_page_html(std::string_view json);

/// One script made of ES modules that import each other by "./NAME.js", beginning with the file `main`. Each becomes a function
/// that returns its exports, placed after the modules it imports, which do not import it in turn. An import or export is on a
/// line of its own, as `import { a, b } from "./c.js";` and `export` in front of a const, function or class. Throws Error if a
/// file is missing.
std::string bundled_modules(const std::string& main);

}  // namespace minfer
