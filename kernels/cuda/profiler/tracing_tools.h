#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace minfer::cuda {

/// An environment variable.
struct Variable {
  std::string_view name;
  std::string_view value;
};

/// The tool to which a path or a program's name belongs; empty: no known tool.
inline std::string_view tracing_tool(std::string_view path) {
  struct Sign {
    std::string_view part, tool;
  };
  static constexpr Sign kSigns[]{{"nsys", "Nsight Systems (nsys)"},
                                 {"nsight-systems", "Nsight Systems (nsys)"},
                                 {"ToolsInjection", "Nsight Systems (nsys)"},
                                 {"ncu", "Nsight Compute (ncu)"},
                                 {"nsight-compute", "Nsight Compute (ncu)"},
                                 {"cuda-injection", "Nsight Compute (ncu)"},
                                 {"cuda-gdb", "cuda-gdb"},
                                 {"sanitizer", "compute-sanitizer"}};
  for (const Sign& sign : kSigns) {
    if (path.find(sign.part) != std::string_view::npos) return sign.tool;
  }
  return {};
}

/// The tool that may hold CUPTI, by the variables that such tools leave in the environment and by the names of
/// the processes above this one, nearest first; empty: no sign of one. An unknown injected library: its path.
inline std::string likely_holder(std::span<const Variable> environment,
                                 std::span<const std::string> parents) {
  for (const Variable& variable : environment) {
    if (variable.name.starts_with("NSYS_")) return "Nsight Systems (nsys)";
  }
  for (const std::string_view name : {"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "INJECTION_PATH"}) {
    for (const Variable& variable : environment) {
      if (variable.name != name || variable.value.empty()) continue;
      const std::string_view tool = tracing_tool(variable.value);
      if (!tool.empty()) return std::string(tool);
      return std::string(variable.value) + ", which " + std::string(name) + " names";
    }
  }
  for (const std::string& parent : parents) {
    const std::string_view tool = tracing_tool(parent);
    if (!tool.empty()) return std::string(tool);
  }
  return {};
}

/// likely_holder() of this process.
std::string likely_holder();

}  // namespace minfer::cuda
