#pragma once

namespace minfer::test {

/// Seconds of CPU time that this thread has used: unlike wall-clock time, they do not depend on the
/// machine's other work. For tests that work is linear, with a limit that a quadratic algorithm exceeds by
/// orders of magnitude.
double thread_cpu_seconds();

}  // namespace minfer::test
