#include "server/openapi/openapi_document.h"

#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "server/http/embedded_files.h"

#define MINFER_EMBEDDED_FILE MINFER_EMBED_BYTES
#include MINFER_OPENAPI_LIST
#undef MINFER_EMBEDDED_FILE

namespace minfer {
namespace {

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
  using Json = nlohmann::ordered_json;
  Json document;
  Json schemas = Json::object();
  for (const OpenapiFile& file : kOpenapiFiles) {
    Json content = Json::parse(file.content);
    file.name == kRoot ? void(document = std::move(content)) : schemas.update(content);
  }
  document["info"]["version"] = MINFER_VERSION;
  document["components"]["schemas"] = std::move(schemas);
  return document.dump();
}

}  // namespace minfer
