#pragma once

#include <span>
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

/// GET / and the files of the live page (server/page/ and Chart.js, all inside the binary). They need no key;
/// the data that they show does. Clients may keep the files, but must ask each time if they are still current.
void add_page_routes(Api& api);

}  // namespace minfer
