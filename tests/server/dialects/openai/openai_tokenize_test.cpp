// /tokenize, /detokenize, /v1/models and /version: body in, body out.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/dialects/openai/openai.h"
#include "tests/support/server/api_requests.h"

namespace minfer {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class OpenAiTokenizeTest : public ::testing::Test {
 protected:
  using Respond = std::string (*)(std::string_view, const ApiContext&, UnknownFields&);

  std::string tokenize(std::string_view body) { return tokenize_response(body, api_.context, unknown_); }
  std::string detokenize(std::string_view body) { return detokenize_response(body, api_.context, unknown_); }
  void expect_refused(Respond respond, const std::string& body, const std::string& param, int status = 400) {
    const auto error = test::api_error_of([&] { respond(body, api_.context, unknown_); });
    ASSERT_TRUE(error) << body;
    EXPECT_EQ(error->status(), status) << body;
    EXPECT_EQ(error->param(), param) << body << ": " << error->what();
  }
  test::TestApi api_;
  UnknownFields unknown_{false};
};

TEST_F(OpenAiTokenizeTest, TextBecomesIds) {
  EXPECT_EQ(tokenize(R"({"model":"small","prompt":"ab"})"),
            R"({"count":2,"max_model_len":1000,"tokens":[97,98],"token_strs":null})");
  EXPECT_EQ(
      tokenize(R"({"model":"small","prompt":"a\u00f8","return_token_strs":true})"),
      R"({"count":3,"max_model_len":1000,"tokens":[97,195,184],"token_strs":["a","bytes:\\xc3","bytes:\\xb8"]})");
  EXPECT_EQ(tokenize(R"({"model":"small","prompt":""})"),
            R"({"count":0,"max_model_len":1000,"tokens":[],"token_strs":null})");
}

TEST_F(OpenAiTokenizeTest, BosIsAddedUnlessToldOtherwise) {
  const auto tokenizer = make_tokenizer(test::small_sentencepiece_vocabulary());
  api_.context.tokenizer = tokenizer.get();
  const auto first = [&](const std::string& more) {
    return Json::parse(tokenize(R"({"model":"small","prompt":"the")" + more + "}"))["tokens"][0];
  };
  EXPECT_EQ(first(""), tokenizer->bos());
  EXPECT_EQ(first(",\"add_special_tokens\":true"), tokenizer->bos());
  EXPECT_NE(first(",\"add_special_tokens\":false"), tokenizer->bos());
}

TEST_F(OpenAiTokenizeTest, AConversationBecomesWhatTheModelSees) {
  const Json body = Json::parse(tokenize(
      R"({"model":"small","messages":[{"role":"user","content":"hello"}],"add_generation_prompt":false})"));
  EXPECT_EQ(body["count"], body["tokens"].size());
  EXPECT_EQ(api_.decode(body["tokens"].get<std::vector<TokenId>>()), "[user]hello<|im_end|>");
}

TEST_F(OpenAiTokenizeTest, IdsBecomeText) {
  EXPECT_EQ(detokenize(R"({"model":"small","tokens":[97,195,169,195]})"),
            "{\"prompt\":\"a\xC3\xA9\xEF\xBF\xBD\"}");
  EXPECT_EQ(detokenize(R"({"model":"small","tokens":[]})"), R"({"prompt":""})");
  const std::string end = std::to_string(api_.tokenizer().end_tokens()[0]);
  EXPECT_THAT(detokenize(R"({"model":"small","tokens":[)" + end + "]}"), HasSubstr("<|"));
}

TEST_F(OpenAiTokenizeTest, OtherBodiesAreRefusedByName) {
  expect_refused(tokenize_response, R"({"model":"x","prompt":"a"})", "model", 404);
  expect_refused(tokenize_response, R"({"model":"small"})", "prompt");
  expect_refused(tokenize_response, R"({"model":"small","prompt":7})", "prompt");
  expect_refused(tokenize_response, R"({"model":"small","messages":[]})", "messages");
  expect_refused(detokenize_response, R"({"model":"small"})", "tokens");
  expect_refused(detokenize_response, R"({"model":"small","tokens":"a"})", "tokens");
  expect_refused(detokenize_response, "", "");
}

TEST_F(OpenAiTokenizeTest, UnknownFieldsAreNamedOrRefused) {
  const char* const text = R"({"model":"small","prompt":"a","temperature":1})";
  const char* const chat = R"({"prompt":"a","messages":[{"role":"user","content":"b","x":1}]})";
  const char* const ids = R"({"tokens":[97],"y":1})";
  EXPECT_EQ(Json::parse(tokenize(text))["count"], 1);
  EXPECT_NO_THROW(tokenize(chat));
  EXPECT_EQ(detokenize(ids), R"({"prompt":"a"})");
  EXPECT_THAT(unknown_.names(), testing::ElementsAre("temperature", "messages[].x", "prompt", "y"));

  unknown_ = UnknownFields(true);
  expect_refused(tokenize_response, text, "temperature");
  expect_refused(tokenize_response, chat, "messages[0].x");
  expect_refused(detokenize_response, ids, "y");
}

TEST_F(OpenAiTokenizeTest, TheTokenizersMarksAreSaid) {
  const auto tokenizer = make_tokenizer(test::small_sentencepiece_vocabulary());
  api_.context.tokenizer = tokenizer.get();
  const Json info = Json::parse(tokenizer_info_response({}, api_.context, unknown_));
  EXPECT_EQ(info["bos_token"], tokenizer->piece(tokenizer->bos(), true));
  EXPECT_EQ(info["eos_token"], tokenizer->piece(tokenizer->eos(), true));
  EXPECT_EQ(info["vocab_size"], api_.context.vocab_size);
  EXPECT_EQ(info["model_max_length"], 1000);
}

TEST_F(OpenAiTokenizeTest, ModelsAreListedAndFound) {
  const std::string other =
      R"({"id":"other","object":"model","created":1700000000,"owned_by":"minfer","max_model_len":1000})";
  EXPECT_EQ(models_response({}, api_.context, unknown_),
            R"({"object":"list","data":[{"id":"small","object":"model","created":1700000000,)"
            R"("owned_by":"minfer","max_model_len":1000},)" +
                other + "]}");
  EXPECT_EQ(model_response("other", api_.context, unknown_), other);
  EXPECT_EQ(model_response("%6fth%65r", api_.context, unknown_), other);
  EXPECT_THROW(model_response("other%", api_.context, unknown_), ApiError);
  EXPECT_THROW(model_response("other%zz", api_.context, unknown_), ApiError);
  const auto error = test::api_error_of([&] { model_response("a\xFF", api_.context, unknown_); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->status(), 404);
  EXPECT_TRUE(Json::accept(error_json(*error)));
  api_.context.any_model_name = true;
  EXPECT_EQ(Json::parse(model_response("gpt-9", api_.context, unknown_))["id"], "gpt-9");
}

TEST_F(OpenAiTokenizeTest, TheVersionIsTheProjects) {
  EXPECT_EQ(kOpenAiEndpoints[5].answer({}, api_.context, unknown_), "{\"version\":\"" MINFER_VERSION "\"}");
}

}  // namespace
}  // namespace minfer
