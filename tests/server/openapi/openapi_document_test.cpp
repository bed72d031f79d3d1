// GET /openapi.json: the document against the routes of a server, and against itself.
#include "server/openapi/openapi_document.h"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/support/server/test_server.h"

namespace minfer {
namespace {

using Json = nlohmann::json;

/// The place that a reference within this document names; null: there is none.
const Json* referred(const Json& document, const std::string& reference) {
  if (!reference.starts_with("#/")) return nullptr;
  const Json::json_pointer place(reference.substr(1));
  return document.contains(place) ? &document.at(place) : nullptr;
}

void collect_references(const Json& value, std::set<std::string>& references) {
  for (const auto& [name, member] : value.items()) {
    if (name == "$ref" && value.is_object()) {
      references.insert(member.get<std::string>());
    } else if (member.is_structured()) {
      collect_references(member, references);
    }
  }
}

/// "GET /v1/models/" for "/v1/models/{model}", the form that Api has for routes with a parameter at the end.
std::set<std::string> described_routes(const Json& document) {
  static const std::set<std::string> kMethods{"get", "post", "put", "delete", "patch"};
  std::set<std::string> routes;
  for (const auto& [path, item] : document.at("paths").items()) {
    for (const auto& [method, operation] : item.items()) {
      if (!kMethods.contains(method)) continue;
      std::string upper = method;
      std::ranges::transform(upper, upper.begin(), [](char c) { return static_cast<char>(c - 'a' + 'A'); });
      routes.insert(upper + ' ' + path.substr(0, path.find('{')));
    }
  }
  return routes;
}

bool is_of_the_page(const std::string& path) {
  return path == "/" || path.starts_with("/page/");
}

TEST(OpenapiDocumentTest, DescribesEveryRouteAndNoOther) {
  test::TestServer server;
  std::set<std::string> routes;
  for (const auto& [method, path] : server.server().api().routes())
    if (!is_of_the_page(path)) routes.insert(method + ' ' + path);
  EXPECT_EQ(described_routes(Json::parse(openapi_document())), routes);
}

TEST(OpenapiDocumentTest, EveryReferenceResolvesAndEverySchemaIsUsed) {
  const Json document = Json::parse(openapi_document());
  std::set<std::string> references;
  collect_references(document, references);
  EXPECT_FALSE(references.empty());
  for (const std::string& reference : references)
    EXPECT_NE(referred(document, reference), nullptr) << reference;
  for (const char* kind : {"schemas", "parameters", "responses"}) {
    for (const auto& [name, component] : document["components"][kind].items()) {
      const std::string reference = std::string("#/components/") + kind + '/' + name;
      EXPECT_TRUE(references.contains(reference)) << reference;
    }
  }
}

TEST(OpenapiDocumentTest, RequiredFieldsOfAnswersAreDescribed) {
  const Json document = Json::parse(openapi_document());
  for (const auto& [name, schema] : document["components"]["schemas"].items()) {
    if (!schema.contains("required") || !schema.contains("properties")) continue;
    for (const Json& field : schema["required"]) {
      const bool is_echoed = name == "Response";  // it repeats fields of the request unchanged
      EXPECT_TRUE(is_echoed || schema["properties"].contains(field.get<std::string>()))
          << name << ' ' << field;
    }
  }
}

TEST(OpenapiDocumentTest, OperationsHaveNamesOfTheirOwn) {
  const Json document = Json::parse(openapi_document());
  std::set<std::string> names;
  for (const auto& [path, item] : document["paths"].items()) {
    for (const auto& [method, operation] : item.items()) {
      if (operation.is_array()) continue;  // the path's parameters
      EXPECT_TRUE(names.insert(operation.at("operationId")).second) << path;
    }
  }
}

TEST(OpenapiDocumentTest, IsServedToThoseWhoHaveAKey) {
  test::ScriptedServing serving;
  serving.server.access.api_keys = {"secret"};
  test::TestServer server(serving);
  RawClient client = server.connect();
  EXPECT_EQ(client.request("GET", "/openapi.json").status, 401);
  const auto answer = client.request("GET", "/openapi.json", "", "authorization: Bearer secret\r\n");
  EXPECT_EQ(answer.status, 200);
  const Json document = Json::parse(answer.body);
  EXPECT_EQ(document["openapi"], "3.1.0");
  EXPECT_EQ(document["info"]["version"], MINFER_VERSION);
}

}  // namespace
}  // namespace minfer
