// The page as a single file.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "server/page/page.h"

namespace minfer {
namespace {

using testing::HasSubstr;
using testing::Not;

size_t count_of(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

TEST(SinglePage, IsOneFileThatNeedsNoOther) {
  const std::string html = single_page_html("{}");
  EXPECT_THAT(html, Not(HasSubstr("<script src")));
  EXPECT_THAT(html, Not(HasSubstr("<link rel=\"stylesheet\"")));
  EXPECT_THAT(html, Not(HasSubstr("\"page/")));
  EXPECT_THAT(html, HasSubstr("Content-Security-Policy\" content=\"default-src 'none';"));
  EXPECT_THAT(html, HasSubstr("Chart.js v"));
  EXPECT_THAT(html, HasSubstr("Permission is hereby granted, free of charge"));
  EXPECT_EQ(count_of(html, "<script"), 3u);
  EXPECT_EQ(count_of(html, "</script>"), 3u);
}

TEST(SinglePage, WhatTheDataSayIsNoMarkup) {
  const std::string hostile = "</script><script>alert(1)</script><!--";
  const std::string json = nlohmann::json{{"name", hostile}}.dump();
  const std::string html = single_page_html(json);
  EXPECT_THAT(html, Not(HasSubstr("alert(1)</script>")));
  EXPECT_EQ(count_of(html, "</script>"), 3u);
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const size_t begin = html.find(open) + open.size();
  const std::string data = html.substr(begin, html.find("</script>", begin) - begin);
  EXPECT_EQ(nlohmann::json::parse(data).at("name"), hostile);
}

TEST(SinglePage, ModulesBecomeOneScript) {
  const std::string script = bundled_modules("page.js");
  EXPECT_THAT(script, Not(HasSubstr("\nimport ")));
  EXPECT_THAT(script, Not(HasSubstr("\nexport ")));
  for (const PageFile& file : page_files()) {
    if (!file.name.ends_with(".js") || file.name == "chart.js") continue;
    const std::string name(file.name.substr(0, file.name.find('.')));
    EXPECT_EQ(count_of(script, "const module_" + name + " = (() => {"), 1u) << "once, and used";
  }
  EXPECT_LT(script.find("const module_format ="), script.find("const module_step ="));
  EXPECT_LT(script.find("const module_strip ="), script.find("const module_page ="));
  EXPECT_EQ(script, bundled_modules("page.js"));
}

TEST(SinglePage, AModuleThatIsNotThereIsAnError) {
  EXPECT_THROW(bundled_modules("nothing.js"), Error);
}

}  // namespace
}  // namespace minfer
