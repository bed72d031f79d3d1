#pragma once

#include "kernels/base/error.h"

namespace minfer::jinja {

/// A template that cannot be parsed, or cannot be rendered for this input. The message names the template's
/// line, what was expected and what was found.
class TemplateError : public Error {
 public:
  using Error::Error;
};

/// The template called raise_exception: it refuses the conversation. The message is the template's.
class TemplateRaised : public TemplateError {
 public:
  using TemplateError::TemplateError;
};

}  // namespace minfer::jinja
