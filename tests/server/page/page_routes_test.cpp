// The files of the live page as the server serves them.

#include <map>

#include <gmock/gmock.h>

#include "server/page/page.h"

namespace minfer {
namespace {

using testing::HasSubstr;
using testing::Not;

/// An exchange that keeps the answer.
class Exchange final : public HttpExchange {
 public:
  explicit Exchange(HttpRequest request) : request_(std::move(request)) {}

  HttpRequest& request() override { return request_; }
  void drop_body() override {}
  bool hold(size_t) override { return true; }
  void respond(HttpResponse answer) override { response = std::move(answer); }
  void begin_stream(HttpResponse) override { ADD_FAILURE() << "a stream"; }
  void abort() override { ADD_FAILURE() << "an answer that breaks off"; }
  bool has_room() const override { return true; }
  void on_room(std::function<void()>) override {}
  void write(std::string_view) override { ADD_FAILURE() << "a stream"; }
  void end() override { ADD_FAILURE() << "a stream"; }
  bool is_closed() const override { return false; }
  void on_closed(std::function<void()>) override {}
  void on_over(std::function<void()>) override {}

  HttpResponse response{.status = 0};

 private:
  HttpRequest request_;
};

class PageRoutesTest : public testing::Test {
 protected:
  PageRoutesTest() { add_page_routes(api_); }

  HttpResponse get(const std::string& path, HttpHeaders headers = {}) {
    HttpRequest request;
    request.method = "GET";
    request.path = path;
    request.headers = std::move(headers);
    const auto exchange = std::make_shared<Exchange>(std::move(request));
    api_.handle(exchange);
    return exchange->response;
  }
  static std::string header(const HttpResponse& response, const std::string& name) {
    const std::map<std::string, std::string> headers(response.headers.begin(), response.headers.end());
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }

  Api api_{AccessRules({.api_keys = {"secret"}}, true)};  // the page itself needs no key
};

TEST_F(PageRoutesTest, ServesEachFileWithItsType) {
  const std::map<std::string, std::string> types{{"/", "text/html; charset=utf-8"},
                                                 {"/page/page.css", "text/css; charset=utf-8"},
                                                 {"/page/page.js", "text/javascript; charset=utf-8"},
                                                 {"/page/strip.js", "text/javascript; charset=utf-8"},
                                                 {"/page/chart.js", "text/javascript; charset=utf-8"},
                                                 {"/page/chart.js.txt", "text/plain; charset=utf-8"},
                                                 {"/page/icon.svg", "image/svg+xml"}};
  for (const auto& [path, type] : types) {
    const HttpResponse response = get(path);
    EXPECT_EQ(response.status, 200) << path;
    EXPECT_EQ(response.content_type, type);
    EXPECT_GT(response.body.size(), 100u) << path;
    EXPECT_THAT(header(response, "content-security-policy"),
                HasSubstr("default-src 'none'; script-src 'self';"));
    EXPECT_THAT(header(response, "content-security-policy"), Not(HasSubstr("unsafe")));
    EXPECT_EQ(header(response, "x-content-type-options"), "nosniff");
  }
  EXPECT_EQ(get("/page/").status, 401) << "nothing else is open";
  EXPECT_EQ(get("/page/../page.js").status, 401);
}

TEST_F(PageRoutesTest, AFileThatTheClientHasIsNotSentAgain) {
  std::string page_tag;
  for (const std::string path : {"/page/page.js", "/"}) {
    const HttpResponse first = get(path);
    const std::string tag = header(first, "etag");
    EXPECT_EQ(header(first, "cache-control"), "no-cache") << "asks each time";
    ASSERT_GT(tag.size(), 10u);
    EXPECT_NE(tag, page_tag) << "of another file";
    for (const std::string& given : {tag, "\"other\", " + tag, "W/" + tag}) {
      const HttpResponse second = get(path, {{"if-none-match", given}});
      EXPECT_EQ(second.status, 304) << given;
      EXPECT_EQ(second.body, "");
      EXPECT_EQ(header(second, "etag"), tag);
    }
    EXPECT_EQ(get(path, {{"if-none-match", "\"other\""}}).status, 200);
    page_tag = tag;
  }
}

// The policy forbids inline scripts and styles, so the page must not have any; and nothing comes from
// another host.
TEST_F(PageRoutesTest, ThePageIsWithinItsPolicy) {
  const std::string page = get("/").body;
  EXPECT_THAT(page, HasSubstr("<script src=\"page/chart.js\" defer></script>"));
  EXPECT_THAT(page, Not(HasSubstr("<script>")));
  EXPECT_THAT(page, Not(HasSubstr("<style")));
  for (const PageFile& file : page_files()) {
    if (file.name.starts_with("chart.js")) continue;
    const std::string path = file.name == "index.html" ? "/" : "/page/" + std::string(file.name);
    const std::string text = get(path).body;
    ASSERT_EQ(text, file.content);
    for (const char* words : {" style=", " onclick=", " onload=", "innerHTML", "https://", "eval("})
      EXPECT_THAT(text, Not(HasSubstr(words))) << path;
  }
}

TEST_F(PageRoutesTest, TheChartLibraryComesWithItsLicence) {
  EXPECT_THAT(get("/page/chart.js").body, HasSubstr("Chart.js v"));
  const std::string licence = get("/page/chart.js.txt").body;
  EXPECT_THAT(licence, HasSubstr("Chart.js Contributors"));
  EXPECT_THAT(licence, HasSubstr("Permission is hereby granted, free of charge"));
  EXPECT_THAT(get("/").body, HasSubstr("href=\"page/chart.js.txt\""));
}

}  // namespace
}  // namespace minfer
