// OpenAI's error object.
#include "server/api/fields/api_error.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace minfer {
namespace {

TEST(ApiErrorTest, GivesOpenAisErrorObject) {
  EXPECT_EQ(error_json(bad_request("top_p", "2, expected 0 to 1")),
            R"({"error":{"message":"top_p: 2, expected 0 to 1","type":"invalid_request_error",)"
            R"("param":"top_p","code":null}})");
  EXPECT_EQ(error_json(ApiError(429, "busy")),
            R"({"error":{"message":"busy","type":"rate_limit_error","param":null,)"
            R"("code":"rate_limit_exceeded"}})");
}

TEST(ApiErrorTest, CarriesTheStatus) {
  EXPECT_EQ(bad_request("n", "").status(), 400);
  EXPECT_EQ(unsupported("n", "").status(), 400);
  EXPECT_EQ(context_length_exceeded("prompt", "").status(), 400);
  EXPECT_EQ(model_not_found("m", {}).status(), 404);
  EXPECT_EQ(model_not_found("m", {}).code(), "model_not_found");
}

TEST(ApiErrorTest, TypeAndCodeFollowTheStatus) {
  for (const int status : {400, 403, 404, 405, 409, 413, 415})
    EXPECT_EQ(ApiError(status, "").type(), "invalid_request_error");
  EXPECT_EQ(ApiError(401, "").type(), "authentication_error");
  EXPECT_EQ(ApiError(401, "").code(), "invalid_api_key");
  EXPECT_EQ(ApiError(429, "").type(), "rate_limit_error");
  EXPECT_EQ(ApiError(500, "").type(), "server_error");
  EXPECT_EQ(ApiError(503, "").type(), "server_error");
  EXPECT_EQ(ApiError(503, "").code(), "");
}

TEST(ApiErrorTest, IsValidJsonWhateverTheMessageHolds) {
  const std::string text = error_json(bad_request("a\xFF\"", "\x01\xC3 \\ \n"));
  EXPECT_EQ(nlohmann::json::parse(text).at("error").at("param"), "a\xEF\xBF\xBD\"");
}

TEST(ApiErrorTest, OfAnExceptionIsItselfOr503WithoutMemoryElse500) {
  EXPECT_EQ(failure(ApiError(404, "x")).status(), 404);
  EXPECT_EQ(failure(std::bad_alloc()).status(), 503);
  EXPECT_EQ(failure(std::runtime_error("x")).status(), 500);
}

}  // namespace
}  // namespace minfer
