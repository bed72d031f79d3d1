#pragma once

#include <string>
#include <string_view>

#include "profiling/json/json_field.h"
#include "profiling/trace/range_analysis.h"

namespace minfer {

inline constexpr std::string_view kKernelSchema = "minfer.kernel/1";

/// Append a line of JSON (schema minfer.kernel/1, see kernel.schema.json), newline included. Times have three decimals, that is
/// nanoseconds.
void append_kernel_line(std::string& out, const KernelLine& kernel);
void append_range_line(std::string& out, const RangeLine& range);
void append_step_kernels_line(std::string& out, const StepKernels& step);

/// Whether a line of this schema is that of a range, or of a traced step; else it is that of a kernel.
bool is_range_line(const JsonField& line);
bool is_step_kernels_line(const JsonField& line);
/// Read what those append. Throw FileError, naming the field.
KernelLine kernel_line_of(const JsonField& line);
RangeLine range_line_of(const JsonField& line);
StepKernels step_kernels_of(const JsonField& line);

}  // namespace minfer
