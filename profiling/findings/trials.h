#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "profiling/findings/evidence.h"

namespace minfer {

/// Options that may mend a rule's finding, in the form of `minfer bench` and `minfer serve`: "--threads 2". Each is to be tried alone,
/// beside the options in force. Empty if no option helps.
std::vector<std::string> trials_of(std::string_view rule, const Evidence& evidence);

/// True if an option changes what the model computes, and so its answers.
bool changes_answers(std::string_view trial);

}  // namespace minfer
