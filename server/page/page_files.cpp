#include "server/page/page_files.h"

#include <algorithm>

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

}  // namespace

std::span<const PageFile> page_files() {
  return kFiles;
}

PageFile page_file(std::string_view name) {
  const auto found = std::ranges::find(page_files(), name, &PageFile::name);
  return found == page_files().end() ? PageFile() : *found;
}

}  // namespace minfer
