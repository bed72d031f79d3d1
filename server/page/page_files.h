#pragma once

#include <span>
#include <string_view>

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

}  // namespace minfer
