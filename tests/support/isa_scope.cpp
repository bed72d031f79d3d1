#include "tests/support/isa_scope.h"

#include <cstdlib>

#include "kernels/cpu/lanes/isa.h"

namespace minfer::test {

IsaScope::IsaScope(const std::string& isa) {
  setenv("MINFER_CPU_ISA", isa.c_str(), 1);
}
IsaScope::~IsaScope() {
  unsetenv("MINFER_CPU_ISA");
}

std::vector<std::string> IsaScope::available() {
  std::vector<std::string> names;
  for (const cpu::Isa isa : {cpu::Isa::portable, cpu::Isa::avx2, cpu::Isa::avx512}) {
    if (isa <= cpu::detected_isa()) names.emplace_back(cpu::name(isa));
  }
  return names;
}

}  // namespace minfer::test
