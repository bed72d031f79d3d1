#pragma once

#include <string>
#include <string_view>

namespace minfer {

/// The page as one file that needs no server and no network: styles, scripts, Chart.js and its licence are inside, and `json`, a
/// document of schema minfer.page/1, as the data that it shows.
std::string single_page_html(std::string_view json);

/// One script of ES modules that import each other by "./NAME.js", beginning with the file `main`: each becomes a function that returns
/// what it exports, after those that it imports. An import or export stands on a line of its own, as `import { a, b } from "./c.js";`
/// and `export` in front of a const, function or class; throws Error where it does not, where a file is missing, and where modules
/// import each other in a circle.
std::string bundled_modules(std::string_view main);

}  // namespace minfer
