#include "server/openapi/openapi_document.h"

#include <algorithm>
#include <string_view>

#include <nlohmann/json.hpp>

#include "server/http/embedded_files.h"

#define MINFER_EMBEDDED_FILE MINFER_EMBED_BYTES
#include MINFER_OPENAPI_LIST
#undef MINFER_EMBEDDED_FILE

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

struct OpenapiFile {
  std::string_view name;
  std::string_view content;
};

#define MINFER_EMBEDDED_FILE(identifier, name, path) {name, MINFER_EMBEDDED_BYTES(identifier)},
const OpenapiFile kOpenapiFiles[] = {
#include MINFER_OPENAPI_LIST
};
#undef MINFER_EMBEDDED_FILE

constexpr std::string_view kRoot = "openapi.json";

}  // namespace

std::string openapi_document() {
  const auto parsed = [](const OpenapiFile& file) { return Json::parse(file.content); };
  Json document = parsed(*std::ranges::find(kOpenapiFiles, kRoot, &OpenapiFile::name));
  for (const OpenapiFile& file : kOpenapiFiles) {
    const Json content = parsed(file);
    if (file.name == kRoot) continue;
    if (!content.contains("paths")) {
      document["components"]["schemas"].update(content);
      continue;
    }
    document["paths"].update(content["paths"]);
    for (const char* kind : {"responses", "schemas"})
      document["components"][kind].update(content[kind]);
  }
  document["info"]["version"] = MINFER_VERSION;
  return document.dump();
}

}  // namespace minfer
