// Templates and requests that would take too much, and their errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/chat/chat_json.h"
#include "models/chat/chat_template.h"
#include "tests/support/cpu_time.h"

namespace minfer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string repeat(const std::string& text, size_t count) {
  std::string all;
  for (size_t i = 0; i < count; ++i)
    all += text;
  return all;
}

/// The error's message; empty if the template renders.
std::string error_of(const std::string& source, const ChatInput& chat = {},
                     const jinja::Limits& limits = {}) {
  try {
    ChatTemplate({.text = source, .name = "test"}, "", "", limits).render(chat);
    return "";
  } catch (const jinja::TemplateError& error) {
    return error.what();
  }
}

TEST(JinjaErrors, NameTheLineWhatWasExpectedAndWhatWasFound) {
  EXPECT_EQ(error_of("\n{% if x %}\n{{ 1 }\n}{% endif %}"), "test: line 3: unexpected '}'");
  EXPECT_EQ(error_of("a\n{% if x %}"),
            "test: line 2: expected 'elif' or 'else' or 'endif', found the end of the template");
  EXPECT_EQ(error_of("{% for x y %}"), "test: line 1: expected 'in', found 'y'");
  EXPECT_EQ(error_of("\n\n{{ x | nope }}"), "test: line 3: no filter named 'nope'");
  EXPECT_EQ(error_of("{{ 1 + }}"), "test: line 1: expected an expression, found '}}'");
  EXPECT_EQ(error_of("{% include 'a' %}"),
            "test: line 1: 'include' needs other templates, which a chat template does not have");
  EXPECT_EQ(error_of("{{ 1 }}\n{{ 'a' +\n 1 }}"),
            "test: line 2: unsupported operands for +: 'str' and 'int'");
  EXPECT_EQ(error_of("{{ a.b.c }}"), "test: line 1: 'a' is undefined");
  EXPECT_EQ(error_of("{% macro m(a) %}{{ a.b.c }}{% endmacro %}\n{{ m({}) }}"),
            "test: line 1: 'dict object' has no attribute 'b'");
  EXPECT_EQ(error_of("{{ [].append(1) }}"), "test: line 1: access to attribute 'append' of 'list' is unsafe");
  EXPECT_EQ(error_of("{{ 9223372036854775807 + 1 }}"),
            "test: line 1: 9223372036854775807 + 1 does not fit into 64 bits");
  EXPECT_EQ(error_of("{{ 9223372036854775808 }}"),
            "test: line 1: 9223372036854775808 does not fit into 64 bits");
}

TEST(JinjaLimits, HoldMemory) {
  for (const char* source : {
           "{{ 'x' * 10**8 }}",
           "{{ ('a\n' * 100000)|indent(100000) }}",
           "{{ {'a': [1, 2]}|tojson(indent=100000000) }}",
           "{{ ('a,' * 100000).replace(',', 'x' * 1000) }}",
           "{{ ('x' * 1000, ) * 100000 }}{{ (['x' * 1000] * 100000)|join }}",
           // Not text: places where the origin changes, parts of a prompt, small values in lists.
           "{{ ('{}a'.format(content) * 20000000)|length }}",
           "{{ '{}a'.format(content) * 1000000 }}",
           "{% set ns = namespace(x=[]) %}{% for i in range(8) %}{% set ns.x = ns.x + "
           "[range(100000)|map('string')|list] %}{% endfor %}",
           "{% set ns = namespace(x=[]) %}{% for i in range(20) %}{% set ns.x = ns.x + "
           "[range(100000)|map(attribute='missing')|list] %}{% endfor %}",
           "{{ ('a' * 20000000).split('a')|length }}",
           "{{ ('é' * 20000000)[::-1]|length }}",
           "{{ 'x' * 10**9 }}",
           "{{ 'x' * 10**18 }}",
           "{{ [0] * 10**9 }}",
           "{{ [0, 1] * 9223372036854775807 }}",
           "{{ 'x'.center(10**12) }}",
           "{{ 'x'|indent(10**10, true) }}",
           "{{ 'x'.ljust(10**12) }}",
           "{{ '5'.zfill(10**12) }}",
           "{{ [1]|tojson(indent=10**12) }}",
           "{{ [1]|batch(10**12, 0)|list }}",
           "{{ [1]|slice(10**12)|list }}",
           "{{ '%*d' % (10**12, 1) }}",
           "{{ '%999999999999d' % 1 }}",
           "{{ '{:999999999999}'.format(1) }}",
           "{{ '%.99999999f' % 1.5 }}",
           "{% set ns = namespace(x='ab') %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
           "{% set ns = namespace(x=[1]) %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
           "{% set ns = namespace(x='ab') %}{% for i in range(64) %}{% set ns.x = ns.x.replace('', ns.x) "
           "%}{% endfor %}",
           "{% set x = 'x' * 10**6 %}{% for i in range(100000) %}{{ x }}{% endfor %}",
       }) {
    ChatInput chat;
    chat.variables.emplace_back("content", jinja::Value(jinja::Text("b", jinja::Origin::request)));
    EXPECT_THAT(error_of(source, chat, {.max_steps = int64_t{1} << 40}),
                testing::AnyOf(HasSubstr("values of more than"), HasSubstr("digits")))
        << source;
    EXPECT_THAT(error_of(source, chat), testing::Not("")) << source;
  }
  EXPECT_THAT(error_of("{{ 'x' * 10**10 }}"), HasSubstr("values of more than"));
}

TEST(JinjaLimits, CountValuesThatAreFreedNoMore) {  // many times 64 MiB, one after the other
  EXPECT_EQ(
      error_of(
          "{% set ns = namespace(x='') %}{% for i in range(5000) %}{% set ns.x = ns.x + 'aaaaaaaaaaaaaaaa' %}"
          "{% endfor %}{{ ns.x|length }}"),
      "");
  EXPECT_EQ(
      error_of(
          "{% set ns = namespace(x=[]) %}{% for i in range(3000) %}{% set ns.x = ns.x + [i] %}{% endfor %}"),
      "");
}

TEST(JinjaLimits, HoldWorkThatMakesNothing) {
  std::string names;
  for (int i = 0; i < 20'000; ++i)
    names += fmt::format("{{% set v{} = 1 %}}", i);
  for (const std::string& source : {
           std::string(
               "{% set x = 'a' * 1000000 %}{% for i in range(10000) %}{{ x|tojson|length }}{% endfor %}"),
           std::string("{% for i in range(10000) %}{% set x = 'a' * 1000000 %}{% endfor %}"),
           std::string(
               "{% set x = ['a'] * 200000 %}{% for i in range(10000) %}{% set y = x + x %}{% endfor %}"),
           std::string("{% set x = 'é' * 10**6 %}{% for i in range(100000) %}{{ x|wordcount }}{% endfor %}"),
           std::string("{% set x = 'é' * 10**6 %}{% for i in range(100000) %}{{ x.isalpha() }}{% endfor %}"),
           std::string("{% set x = 'é' * 10**6 %}{% for i in range(100000) %}{{ x.count('é') }}{% endfor %}"),
           std::string("{{ ('é' * 10**6).strip('a' * 10**6 ~ 'é') }}"),
           names + "{% for i in range(100000) %}{{ unknown }}{{ unknown }}{% endfor %}",
           std::string(
               "{% set x = 'x' * 10**6 %}{% for i in range(100000) %}{% set y = x.upper() %}{% endfor %}"),
           std::string(
               "{% set x = 'é' * 10**6 %}{% for i in range(100000) %}{% set y = x.title() %}{% endfor %}"),
       }) {
    EXPECT_THAT(error_of(source), HasSubstr("steps")) << source.substr(0, 80);
  }
}

TEST(JinjaLimits, HoldTime) {
  for (const char* source : {
           "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
           "{{ range(10**12) }}",
           "{% set ns = namespace(x=[]) %}{% for i in range(300) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
           "{{ ns.x == ns.x }}",
           "{% set ns = namespace(x=[], y=[]) %}{% for i in range(300) %}{% set ns.x = [ns.x, ns.x] %}"
           "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
           "{% set ns = namespace(x=[]) %}{% for i in range(300) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
           "{{ ns.x|tojson }}",
           "{% set x = 'a' * 1000000 %}{% for i in range(100000) %}{{ x[500000] }}{% endfor %}",
           "{% set x = 'a' * 1000000 %}{% for i in range(100000) %}{% if 'b' in x %}{% endif %}{% endfor %}",
           "{% set x = 'a ' * 100000 %}{{ x.rsplit('a')|length }}{% for i in range(10000) %}{{ "
           "x.rsplit()|length }}{% endfor %}",
           // Keys that are no texts are compared one after the other.
           "{{ dict(range(20000)|batch(2))|length }}",
           "{% set d = dict(range(1000)|batch(2)) %}{% for i in range(10000) %}{{ d.get(-1) }}{% endfor %}",
           "{% set d = dict(range(1000)|batch(2)) %}{% for i in range(10000) %}{{ d[998] }}{% endfor %}",
           "{% set d = dict(range(1000)|batch(2)) %}{% for i in range(10000) %}{{ -1 in d }}{% endfor %}",
           "{% set d = dict(range(1000)|batch(2)) %}{% for i in range(100) %}{{ d == d }}{% endfor %}",
           "{% set key = ((1,) * 100000,) %}{% for i in range(10000) %}{{ {}.get(key) }}{% endfor %}",
       }) {
    const double begin = test::thread_cpu_seconds();
    EXPECT_THAT(error_of(source, {}, {.max_steps = 1'000'000}), testing::Not("")) << source;
    EXPECT_LT(test::thread_cpu_seconds() - begin, 60.0) << source;
  }
}

TEST(JinjaLimits, TakesTextsThatAreSlowToSearchInLinearTime) {
  ChatInput chat;
  chat.add_message("user", repeat("a", 2'000'000));
  chat.add_message("user", repeat("a", 500'000) + "b" + repeat("a", 500'000));
  const double begin = test::thread_cpu_seconds();
  EXPECT_EQ(
      error_of(
          "{% set a = messages[0].content %}{% set b = messages[1].content %}"
          "{{ b in a }}{{ a.find(b) }}{{ a.rfind(b) }}{{ a.replace(b, 'x')|length }}{{ a.split(b)|length }}"
          "{{ a.rsplit(b)|length }}{{ a.count(b) }}",
          chat),
      "");
  EXPECT_LT(test::thread_cpu_seconds() - begin, 60.0);
}

TEST(JinjaLimits, HoldTheDepthOfParsing) {
  const size_t many = 100'000;
  for (const std::string& source : {
           "{{ " + repeat("(", many),
           "{{ " + repeat("[", many),
           "{{ " + repeat("{1:", many),
           "{{ " + repeat("not ", many) + "1 }}",
           "{{ " + repeat("-", many) + "1 }}",
           "{{ 1" + repeat("+1", many) + " }}",
           "{{ 'a'" + repeat("|trim", many) + " }}",
           "{{ a" + repeat(".b", many) + " }}",
           "{{ a" + repeat("[0]", many) + " }}",
           "{{ a" + repeat("()", many) + " }}",
           "{{ 1" + repeat(" if 1 else 1", many) + " }}",
           "{{ 1 is " + repeat("eq eq ", many) + " }}",
           repeat("{% if 1 %}", many),
           repeat("{% for a in b %}", many),
           "{% set " + repeat("(", many) + "a",
       }) {
    EXPECT_THAT(error_of(source), HasSubstr("line 1")) << source.substr(0, 20);
  }
  EXPECT_EQ(error_of("{{ " + repeat("(", 50) + "1" + repeat(")", 50) + " }}"), "");
  EXPECT_EQ(error_of("{{ 1" + repeat(" ~ 1", 10'000) + " }}"), "");
  EXPECT_EQ(error_of("{% if 0 %}" + repeat("{% elif 0 %}", 10'000) + "{% endif %}"), "");
}

TEST(JinjaLimits, HoldTheDepthOfEvaluation) {
  EXPECT_THAT(error_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
              HasSubstr("levels of nested evaluation"));
  EXPECT_THAT(
      error_of("{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}"),
      HasSubstr("levels of nested evaluation"));
  EXPECT_THAT(error_of("{% set ns = namespace() %}{% set ns.t = [ns] %}{{ ns }}"), HasSubstr("levels"));
  EXPECT_THAT(
      error_of("{% set ns = namespace(x=0) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}"),
      HasSubstr("nested more than"));
  EXPECT_THAT(
      error_of("{% set ns = namespace(x=[1]) %}{% for i in range(1000) %}{% set ns.x = ns.x|map('string') %}"
               "{% endfor %}"),
      HasSubstr("nested more than"));
  EXPECT_THAT(error_of("{% set ns = namespace() %}{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}"),
              HasSubstr("levels of nested evaluation"));
  // Deep enough for real templates: a schema of 60 levels, printed by a macro that calls itself.
  EXPECT_EQ(error_of("{% macro m(n) %}{% if n > 0 %}{% for i in [1] %}{{ m(n - 1) }}{% endfor %}{% endif %}"
                     "{% endmacro %}{{ m(60) }}"),
            "");
}

TEST(JinjaLimits, NothingThatRefersToItselfLeaks) {  // the leak sanitizer would see it
  EXPECT_EQ(error_of("{% set ns = namespace() %}{% set ns.self = ns %}{% set ns.list = [ns] %}"), "");
  EXPECT_EQ(error_of("{% macro m() %}{% endmacro %}{% set ns = namespace(f=m) %}{% set x = [m, ns] %}"), "");
  EXPECT_EQ(error_of("{% for i in [1] %}{{ loop.changed(loop) }}{% endfor %}"), "");
  EXPECT_EQ(error_of("{% set ns = namespace() %}{% for i in [1] %}{% set ns.l = loop %}{% endfor %}{{ "
                     "ns.l.changed(ns.l) }}"),
            "");
  EXPECT_EQ(
      error_of(
          "{% set ns = namespace() %}{% set c = cycler(ns, 1) %}{% set ns.c = c %}{{ c.next() is defined }}"),
      "");
}

TEST(JinjaLimits, ALongChainOfNamespacesIsFreedWithoutRecursion) {
  EXPECT_EQ(error_of("{% set head = namespace() %}{% set at = namespace(t=head) %}"
                     "{% for i in range(100000) %}{% set n = namespace() %}{% set tail = at.t %}"
                     "{% set tail.next = n %}{% set at.t = n %}{% endfor %}"),
            "");
}

TEST(JinjaLimits, HoldInTheMiddleOfATemplateThatIsUsedAgain) {
  const ChatTemplate chat_template(
      {.text = "{% macro m(n) %}{{ m(n - 1) if n else 'x' }}{% endmacro %}{{ m(depth) }}"}, "", "");
  ChatInput deep;
  deep.variables.emplace_back("depth", jinja::Value(int64_t{100'000}));
  ChatInput shallow;
  shallow.variables.emplace_back("depth", jinja::Value(int64_t{3}));
  EXPECT_THROW(chat_template.render(deep), jinja::TemplateError);
  EXPECT_EQ(chat_template.render(shallow).parts.front().text, "x");
}

TEST(JinjaInput, TakesBytesThatAreNotUtf8) {
  ChatInput chat;
  chat.add_message("user", "a\xFF\xC3");
  EXPECT_EQ(
      error_of(
          "{{ messages[0].content|upper }}{{ messages[0].content|tojson }}{{ messages[0].content[::-1] }}"
          "{{ messages }}{{ messages[0].content|length }}{{ messages[0].content|title }}",
          chat),
      "");
  EXPECT_EQ(error_of("{{ 'a\xFF' }}\xC3{{ 'a\xFF'|upper }}"), "");
  EXPECT_THAT(error_of("{{ \xFF }}"), AllOf(HasSubstr("line 1"), HasSubstr("unexpected character")));
}

}  // namespace
}  // namespace minfer
