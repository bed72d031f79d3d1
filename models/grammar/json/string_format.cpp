#include "models/grammar/json/string_format.h"

#include <optional>
#include <string>

#include "models/grammar/regex/regex.h"

namespace minfer {
namespace {

/// RFC 3339. The year 0000 and leap seconds are left out: few programs read them.
std::string date_pattern() {
  const std::string year = R"((000[1-9]|00[1-9]\d|0[1-9]\d\d|[1-9]\d{3}))";
  const std::string fours = "(0[48]|[2468][048]|[13579][26])";  // multiples of four but 00
  return "(" + year + R"(-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30))" +
         R"(|02-(0[1-9]|1\d|2[0-8]))|(\d\d)" + fours + "|" + fours + "00)-02-29)";
}

/// With the offset that RFC 3339 demands.
std::string time_pattern() {
  return R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))";
}

/// RFC 3339, appendix A: units without a gap between them.
std::string duration_pattern() {
  const std::string number = R"(\d{1,9})";
  const std::string minutes = number + "M(" + number + "S)?";
  const std::string time = "T(" + number + "H(" + minutes + ")?|" + minutes + "|" + number + "S)";
  const std::string months = number + "M(" + number + "D)?";
  const std::string date = "(" + number + "Y(" + months + ")?|" + months + "|" + number + "D)";
  return "P(" + date + "(" + time + ")?|" + time + "|" + number + "W)";
}

/// RFC 1123: four labels of at most 61 characters, without hyphens side by side (RFC 5890), so that the name stays below 253.
std::string hostname_pattern(std::string_view num_dots) {
  const std::string label = "[A-Za-z0-9](-?[A-Za-z0-9]){0,30}";
  return label + R"((\.)" + label + "){" + std::string(num_dots) + "}";
}

/// RFC 5321: a dot-string of at most 62 characters at a host name of two labels or more.
std::string email_pattern() {
  const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}";
  return atom + R"((\.)" + atom + "){0,2}@" + hostname_pattern("1,3");
}

std::string ipv4_pattern() {
  const std::string octet = R"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))";
  return octet + R"((\.)" + octet + "){3}";
}

/// RFC 4291: eight groups. "::" may stand for one or more of them, and the last two may be written as IPv4.
std::string ipv6_pattern() {
  const std::string group = "[0-9a-fA-F]{1,4}";
  std::string pattern = "((" + group + ":){7}" + group + "|(" + group + ":){6}" + ipv4_pattern() + "|(" +
                        group + ":){1,7}:|::(ffff:)?" + ipv4_pattern() + "|:(:" + group + "){1,7}|::";
  for (int before = 1; before <= 6; ++before) {
    pattern += "|(" + group + ":){1," + std::to_string(before) + "}(:" + group + "){1," +
               std::to_string(7 - before) + "}";
  }
  return pattern + ")";
}

/// RFC 3986, the host a name or an IPv4 address.
std::string uri_pattern() {
  const std::string character = "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
  const std::string authority = "//" + hostname_pattern("0,3") + R"((:\d{1,5})?(/)" + character + "*)*";
  const std::string rootless = character + "+(/" + character + "*)*";
  const std::string behind = "(" + character + "|[/?])*";
  return "[A-Za-z][A-Za-z0-9+.-]{0,30}:(" + authority + "|" + rootless + R"()(\?)" + behind + ")?(#" +
         behind + ")?";
}

std::optional<std::string> pattern_of(std::string_view format) {
  if (format == "date") return date_pattern();
  if (format == "time") return time_pattern();
  if (format == "date-time") return date_pattern() + "T" + time_pattern();
  if (format == "duration") return duration_pattern();
  if (format == "uuid") return "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}";
  if (format == "email") return email_pattern();
  if (format == "hostname") return hostname_pattern("0,3");
  if (format == "ipv4") return ipv4_pattern();
  if (format == "ipv6") return ipv6_pattern();
  if (format == "uri" || format == "url") return uri_pattern();
  return std::nullopt;
}

}  // namespace

bool is_string_format(std::string_view format) {
  return pattern_of(format).has_value();
}

GrammarBuilder::Expr format_texts(GrammarBuilder& builder, std::string_view format, Spelling spelling) {
  return regex_texts(builder, pattern_of(format).value(), RegexScope::whole, spelling);
}

}  // namespace minfer
