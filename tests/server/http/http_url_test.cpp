#include "server/http/http_url.h"

#include <gtest/gtest.h>

#include "kernels/base/error.h"

namespace minfer {
namespace {

TEST(HttpUrl, HostsPortsAndPaths) {
  struct Case {
    const char* url;
    const char* host;
    uint16_t port;
    const char* path;
    const char* authority;
  };
  for (const Case& expected : {Case{"http://localhost", "localhost", 80, "", "localhost"},
                               Case{"http://10.0.0.7:8000/", "10.0.0.7", 8000, "", "10.0.0.7:8000"},
                               Case{"http://[::1]:65535/a/b/", "::1", 65535, "/a/b", "[::1]:65535"},
                               Case{"http://[fe80::1]", "fe80::1", 80, "", "[fe80::1]"}}) {
    const HttpUrl url = parse_http_url(expected.url);
    EXPECT_EQ(url.host, expected.host) << expected.url;
    EXPECT_EQ(url.port, expected.port) << expected.url;
    EXPECT_EQ(url.path, expected.path) << expected.url;
    EXPECT_EQ(url.authority(), expected.authority);
  }
}

TEST(HttpUrl, EscapesAreDecodedAndOtherTextStays) {
  EXPECT_EQ(percent_decoded("org%2Fname+x%e2%82%ac"), "org/name+x\u20ac");
  EXPECT_EQ(percent_decoded("100%"), "100%");
  EXPECT_EQ(percent_decoded("%zz%4"), "%zz%4");
}

TEST(HttpUrl, WhatCannotBeUsedIsRefused) {
  for (const char* url :
       {"", "localhost:8000", "https://localhost", "ftp://x", "http://", "http://:80",
        "http://a:", "http://a:0", "http://a:65536", "http://a:8x", "http://[::1", "http://[::1]8000",
        "http://u@a", "http://a/?q", "http://a/b c", "http://a\r\nX: y"})
    EXPECT_THROW(parse_http_url(url), Error) << url;
  try {
    parse_http_url("https://localhost");
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("https is not supported"), std::string::npos);
  }
}

}  // namespace
}  // namespace minfer
