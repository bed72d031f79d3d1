#include "server/page/page_files.h"

#include <algorithm>

// A file's bytes become read-only data of the program, from page_NAME_begin to page_NAME_end. The list, with the
// paths, is CMake's.
#define MINFER_PAGE_FILE(identifier, name, path) \
  asm(".section .rodata\n"                       \
      "page_" #identifier                        \
      "_begin:\n"                                \
      ".incbin \"" path                          \
      "\"\n"                                     \
      "page_" #identifier                        \
      "_end:\n"                                  \
      ".byte 0\n"                                \
      ".previous\n");                            \
  extern "C" {                                   \
  extern const char page_##identifier##_begin[]; \
  extern const char page_##identifier##_end[];   \
  }
#include MINFER_PAGE_LIST
#undef MINFER_PAGE_FILE

namespace minfer {
namespace {

std::string_view content_type_of(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  if (name.ends_with(".txt")) return "text/plain; charset=utf-8";
  return "text/javascript; charset=utf-8";
}

#define MINFER_PAGE_FILE(identifier, name, path) \
  {name, content_type_of(name), {page_##identifier##_begin, page_##identifier##_end}},
const PageFile kFiles[] = {
#include MINFER_PAGE_LIST
};
#undef MINFER_PAGE_FILE

}  // namespace

std::span<const PageFile> page_files() {
  return kFiles;
}

PageFile page_file(std::string_view name) {
  const auto found = std::ranges::find(page_files(), name, &PageFile::name);
  return found == page_files().end() ? PageFile() : *found;
}

}  // namespace minfer
