#pragma once

#include <string>

namespace minfer {

/// GET /openapi.json: the OpenAPI 3.1 description of all endpoints but the page's. It is openapi.json of this folder with the
/// schemas of schemas/, the parts that dialects bring ("paths", "responses", "schemas") and the program's version. All are inside
/// the program.
std::string openapi_document();

}  // namespace minfer
