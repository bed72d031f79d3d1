#include "server/commands/terminal/progress_bar.h"

#include <cstdio>
#include <string>

#include <fmt/format.h>

#include "kernels/stamps.h"
#include "server/commands/terminal/terminal.h"

namespace minfer {
namespace {

constexpr size_t kWidth = 30;
constexpr int64_t kPeriodNs = 200'000'000;

}  // namespace

ProgressBar::ProgressBar(size_t total) : total_(total), shown_(is_terminal(stderr)), begin_ns_(now_ns()) {}

ProgressBar::~ProgressBar() {
  if (shown_) fmt::print(stderr, "\r\x1b[K");
}

void ProgressBar::update(size_t done, int64_t output_tokens) {
  if (!shown_) return;
  const int64_t time_ns = now_ns();
  if (time_ns < next_ns_) return;
  next_ns_ = time_ns + kPeriodNs;
  const size_t filled = total_ == 0 ? kWidth : kWidth * done / total_;
  const double seconds = static_cast<double>(time_ns - begin_ns_) * 1e-9;
  fmt::print(stderr, "\r[{}{}] {}/{} requests  {:.0f} tokens/s\x1b[K", std::string(filled, '#'),
             std::string(kWidth - filled, '.'), done, total_, static_cast<double>(output_tokens) / seconds);
  std::fflush(stderr);
}

}  // namespace minfer
