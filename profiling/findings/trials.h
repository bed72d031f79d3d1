#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "profiling/findings/evidence.h"

namespace minfer {

/// Options that may mend what a rule finds, as `minfer bench` and `minfer serve` take them: "--threads 2". Each is to be tried by itself,
/// beside those in force. Empty where no option does.
std::vector<std::string> trials_of(std::string_view rule, const Evidence& evidence);

/// Whether an option changes what the model computes, and so its answers.
bool changes_answers(std::string_view trial);

}  // namespace minfer
