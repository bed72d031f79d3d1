#pragma once

namespace minfer::test {

/// Seconds of CPU time that this thread has used: unlike the wall clock's, they do not grow with what else the
/// machine does. For tests that work is linear, whose limit a quadratic algorithm exceeds by orders of
/// magnitude.
double thread_cpu_seconds();

}  // namespace minfer::test
