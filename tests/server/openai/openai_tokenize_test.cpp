// /tokenize, /detokenize, /v1/models and /version: body in, body out.
#include "server/openai/openai_tokenize.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/server/api_requests.h"

namespace minfer {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class OpenAiTokenizeTest : public ::testing::Test {
 protected:
  void expect_refused(std::string (*respond)(std::string_view, const ApiContext&), const std::string& body,
                      const std::string& param, int status = 400) const {
    const auto error = test::api_error_of([&] { respond(body, api_.context); });
    ASSERT_TRUE(error) << body;
    EXPECT_EQ(error->status(), status) << body;
    EXPECT_EQ(error->param(), param) << body << ": " << error->what();
  }
  test::TestApi api_;
};

TEST_F(OpenAiTokenizeTest, TextBecomesIds) {
  EXPECT_EQ(tokenize_response(R"({"model":"small","prompt":"ab"})", api_.context),
            R"({"count":2,"max_model_len":1000,"tokens":[97,98],"token_strs":null})");
  EXPECT_EQ(
      tokenize_response(R"({"model":"small","prompt":"a\u00f8","return_token_strs":true})", api_.context),
      R"({"count":3,"max_model_len":1000,"tokens":[97,195,184],"token_strs":["a","bytes:\\xc3","bytes:\\xb8"]})");
  EXPECT_EQ(tokenize_response(R"({"model":"small","prompt":""})", api_.context),
            R"({"count":0,"max_model_len":1000,"tokens":[],"token_strs":null})");
}

TEST_F(OpenAiTokenizeTest, BosIsAddedUnlessToldOtherwise) {
  const auto tokenizer = make_tokenizer(test::small_sentencepiece_vocabulary());
  api_.context.tokenizer = tokenizer.get();
  const auto first = [&](const std::string& more) {
    return Json::parse(
        tokenize_response(R"({"model":"small","prompt":"the")" + more + "}", api_.context))["tokens"][0];
  };
  EXPECT_EQ(first(""), tokenizer->bos());
  EXPECT_EQ(first(",\"add_special_tokens\":true"), tokenizer->bos());
  EXPECT_NE(first(",\"add_special_tokens\":false"), tokenizer->bos());
}

TEST_F(OpenAiTokenizeTest, AConversationBecomesWhatTheModelSees) {
  const Json body = Json::parse(tokenize_response(
      R"({"model":"small","messages":[{"role":"user","content":"hello"}],"add_generation_prompt":false})",
      api_.context));
  EXPECT_EQ(body["count"], body["tokens"].size());
  EXPECT_EQ(api_.decode(body["tokens"].get<std::vector<TokenId>>()), "[user]hello<|im_end|>");
}

TEST_F(OpenAiTokenizeTest, IdsBecomeText) {
  EXPECT_EQ(detokenize_response(R"({"model":"small","tokens":[97,195,169,195]})", api_.context),
            "{\"prompt\":\"a\xC3\xA9\xEF\xBF\xBD\"}");
  EXPECT_EQ(detokenize_response(R"({"model":"small","tokens":[]})", api_.context), R"({"prompt":""})");
  const std::string end = std::to_string(api_.tokenizer().end_tokens()[0]);
  EXPECT_THAT(detokenize_response(R"({"model":"small","tokens":[)" + end + "]}", api_.context),
              HasSubstr("<|"));
}

TEST_F(OpenAiTokenizeTest, OtherBodiesAreRefusedByName) {
  expect_refused(tokenize_response, R"({"prompt":"a"})", "model");
  expect_refused(tokenize_response, R"({"model":"x","prompt":"a"})", "model", 404);
  expect_refused(tokenize_response, R"({"model":"small"})", "prompt");
  expect_refused(tokenize_response, R"({"model":"small","prompt":7})", "prompt");
  expect_refused(tokenize_response, R"({"model":"small","prompt":"a","temperature":1})", "temperature");
  expect_refused(tokenize_response,
                 R"({"model":"small","prompt":"a","messages":[{"role":"user","content":"b"}]})", "prompt");
  expect_refused(tokenize_response, R"({"model":"small","messages":[]})", "messages");
  expect_refused(detokenize_response, R"({"model":"small"})", "tokens");
  expect_refused(detokenize_response, R"({"model":"small","tokens":"a"})", "tokens");
  expect_refused(detokenize_response, R"({"model":"small","tokens":[1],"x":1})", "x");
  expect_refused(detokenize_response, "", "");
}

TEST_F(OpenAiTokenizeTest, ModelsAreListedAndFound) {
  const std::string other =
      R"({"id":"other","object":"model","created":1700000000,"owned_by":"minfer","max_model_len":1000})";
  EXPECT_EQ(models_response(api_.context),
            R"({"object":"list","data":[{"id":"small","object":"model","created":1700000000,)"
            R"("owned_by":"minfer","max_model_len":1000},)" +
                other + "]}");
  EXPECT_EQ(model_response("other", api_.context), other);
  EXPECT_EQ(model_response("%6fth%65r", api_.context), other);
  EXPECT_THROW(model_response("other%", api_.context), ApiError);
  EXPECT_THROW(model_response("other%zz", api_.context), ApiError);
  const auto error = test::api_error_of([&] { model_response("a\xFF", api_.context); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->status(), 404);
  EXPECT_TRUE(Json::accept(error_json(*error)));
}

TEST_F(OpenAiTokenizeTest, TheVersionIsTheProjects) {
  EXPECT_EQ(version_response(), "{\"version\":\"" MINFER_VERSION "\"}");
}

}  // namespace
}  // namespace minfer
