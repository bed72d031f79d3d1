#pragma once

#include <string>

namespace minfer {

/// GET /openapi.json: the OpenAPI 3.1 description of all endpoints but the page's. It is openapi.json
/// of this folder with the schemas of schemas/ and the program's version; all are inside the program.
std::string openapi_document();

}  // namespace minfer
