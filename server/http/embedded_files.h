#pragma once

#include <string_view>

// Files that are part of the program. CMake's embed_files() lists them, with their paths, as lines
// MINFER_EMBEDDED_FILE(identifier, "name", "path"), which a source includes once for each use:
//
//   #define MINFER_EMBEDDED_FILE MINFER_EMBED_BYTES
//   #include LIST                                     // outside of any namespace
//   #undef MINFER_EMBEDDED_FILE

/// A file's bytes become read-only data of the program.
#define MINFER_EMBED_BYTES(identifier, name, path)   \
  asm(".section .rodata\n"                           \
      "embedded_" #identifier                        \
      "_begin:\n"                                    \
      ".incbin \"" path                              \
      "\"\n"                                         \
      "embedded_" #identifier                        \
      "_end:\n"                                      \
      ".byte 0\n"                                    \
      ".previous\n");                                \
  extern "C" {                                       \
  extern const char embedded_##identifier##_begin[]; \
  extern const char embedded_##identifier##_end[];   \
  }

/// Its bytes, as a std::string_view.
#define MINFER_EMBEDDED_BYTES(identifier) \
  std::string_view(embedded_##identifier##_begin, embedded_##identifier##_end)
