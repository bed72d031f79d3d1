#pragma once

#include <string>

#include "kernels/base/error.h"

namespace minfer::test {

/// The message of the exception that `call` throws; "" if it throws none.
template <class Exception = Error, class Call>
std::string refusal_of(Call&& call) {
  try {
    call();
  } catch (const Exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace minfer::test
