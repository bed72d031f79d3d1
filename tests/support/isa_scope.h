#pragma once

#include <string>
#include <vector>

namespace minfer::test {

/// While it lives, backends are made for the named instruction set.
class IsaScope {
 public:
  explicit IsaScope(const std::string& isa);
  ~IsaScope();
  IsaScope(const IsaScope&) = delete;
  IsaScope& operator=(const IsaScope&) = delete;

  /// The sets that this processor runs, by name.
  static std::vector<std::string> available();
};

}  // namespace minfer::test
