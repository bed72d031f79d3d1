#include "kernels/tuning/kernel_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <utility>

#include "kernels/error.h"

namespace minfer::cuda {
namespace {

constexpr double kLeastGain = 0.03;
constexpr int64_t kMostTokens = 1 << 20;
constexpr int64_t kMostSize = 1 << 30;  ///< of rows, columns, multiprocessors
constexpr double kMostUs = 1e9;
constexpr std::string_view kHeader =
    "# Which kernels compute products fastest on this device: by `minfer bench --kernels --tune`, for "
    "--kernel-table.\n";

/// The words of a line, and messages about it.
class LineReader {
 public:
  LineReader(std::string_view file, size_t number, std::string_view line)
      : file_(file), number_(number), rest_(line.substr(0, line.find('#'))) {
    if (rest_.ends_with('\r')) rest_.remove_suffix(1);
    skip_spaces();
  }

  bool is_empty() const { return rest_.empty(); }

  [[noreturn]] void refuse(std::string_view expected, std::string_view found) const {
    constexpr size_t kShown = 60;
    const std::string shown(found.substr(0, kShown));
    fail<FileError>("kernel table {}: line {}: expected {}, found {}{}", file_, number_, expected,
                    shown.empty() ? "the end of the line" : fmt::format("{:?}", shown),
                    found.size() > kShown ? " ..." : "");
  }

  std::string_view word(std::string_view expected) {
    if (rest_.empty()) refuse(expected, "");
    const std::string_view taken = rest_.substr(0, rest_.find_first_of(kSpaces));
    rest_.remove_prefix(taken.size());
    skip_spaces();
    return taken;
  }
  void expect(std::string_view expected) {
    const std::string_view found = word(expected);
    if (found != expected) refuse(expected, found);
  }
  std::string_view rest() { return std::exchange(rest_, {}); }
  void end() const {
    if (!rest_.empty()) refuse("the end of the line", rest_);
  }

  int64_t number(std::string_view what, int64_t least, int64_t most) {
    const std::string expected = fmt::format("{} (a number from {} to {})", what, least, most);
    const std::string_view text = word(expected);
    const std::optional<int64_t> value = number_of<int64_t>(text);
    if (!value || *value < least || *value > most) refuse(expected, text);
    return *value;
  }
  double microseconds(std::string_view what) {
    const std::string expected = fmt::format("{} (microseconds)", what);
    const std::string_view text = word(expected);
    const std::optional<double> value = number_of<double>(text);
    if (!value || !std::isfinite(*value) || *value < 0.0 || *value > kMostUs) refuse(expected, text);
    return *value;
  }
  TokenRange tokens() {
    const std::string expected = fmt::format("tokens (FIRST-LAST, from 1 to {})", kMostTokens);
    const std::string_view text = word(expected);
    const size_t dash = text.find('-');
    const std::optional<int64_t> first = number_of<int64_t>(text.substr(0, dash));
    const std::optional<int64_t> last =
        dash == std::string_view::npos ? std::nullopt : number_of<int64_t>(text.substr(dash + 1));
    if (!first || !last || *first < 1 || *last < *first || *last > kMostTokens) refuse(expected, text);
    return {*first, *last};
  }
  ProductPlan plan(std::string_view what) {
    const std::string expected = fmt::format("{} (a kernel, e.g. cublaslt or stream:64x128/line)", what);
    const std::string_view text = word(expected);
    const std::optional<ProductPlan> plan = product_plan_from(text);
    if (!plan) refuse(expected, text);
    return *plan;
  }
  DType type() {
    const std::string_view text = word("a type of weights");
    std::optional<DType> type = dtype_from_name(text);
    for (const DType no_files : {DType::fp8, DType::lut4}) {
      if (text == name(no_files)) type = no_files;
    }
    if (!type) refuse("a type of weights (e.g. bf16 or q4_k)", text);
    return *type;
  }
  ProductOp op() {
    const std::string_view text = word("linear, linear_add or gate_up");
    const std::optional<ProductOp> op = product_op_from_name(text);
    if (!op) refuse("linear, linear_add or gate_up", text);
    return *op;
  }

 private:
  static constexpr std::string_view kSpaces = " \t";

  void skip_spaces() { rest_.remove_prefix(std::min(rest_.find_first_not_of(kSpaces), rest_.size())); }

  template <class Number>
  static std::optional<Number> number_of(std::string_view text) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_whole = error == std::errc() && end == text.data() + text.size();
    return is_whole ? std::optional(value) : std::nullopt;
  }

  std::string_view file_;
  size_t number_;
  std::string_view rest_;
};

PlanDevice read_device(LineReader& line) {
  line.expect("device");
  const std::string_view sm = line.word("sm_ and a compute capability");
  int32_t capability = 0;
  const char* end = sm.data() + sm.size();
  const bool has_prefix = sm.starts_with("sm_");
  const auto [read, error] = std::from_chars(sm.data() + (has_prefix ? 3 : 0), end, capability);
  if (!has_prefix || error != std::errc() || read != end || capability < 10 || capability > 9999)
    line.refuse("sm_ and a compute capability, e.g. sm_90", sm);
  PlanDevice device{
      .name = {},
      .major = capability / 10,
      .minor = capability % 10,
      .multiprocessors = static_cast<int32_t>(line.number("the number of multiprocessors", 1, kMostSize))};
  if (line.is_empty()) line.refuse("the device's name", "");
  device.name = line.rest();
  device.name.erase(device.name.find_last_not_of(" \t") + 1);
  return device;
}

KernelTableLine read_product(LineReader& line) {
  KernelTableLine product;
  product.shape.type = line.type();
  product.shape.op = line.op();
  product.shape.rows = line.number("rows", 1, kMostSize);
  product.shape.cols = line.number("columns", 1, kMostSize);
  product.tokens = line.tokens();
  product.plan = line.plan("the plan");
  product.us = line.microseconds("its time");
  product.next = line.plan("the runner-up");
  product.next_us = line.microseconds("its time");
  product.automatic_us = line.microseconds("the time of automatic");
  line.end();
  return product;
}

}  // namespace

TokenRange token_range(int64_t tokens, int64_t measured_below) {
  int64_t smaller_tile = 1;
  while (2 * smaller_tile < tokens)
    smaller_tile *= 2;
  return {std::max(measured_below, tokens == 1 ? 0 : smaller_tile) + 1, tokens};
}

KernelTableLine choose_plan(const ProductShape& shape, TokenRange tokens,
                            std::span<const MeasuredPlan> measured) {
  const auto automatic = std::ranges::find(measured, ProductPlan{}, &MeasuredPlan::plan);
  if (automatic == measured.end() || measured.size() < 2)
    fail("kernel table: {} plans were measured, expected automatic and another", measured.size());
  auto best = std::ranges::min_element(measured, {}, &MeasuredPlan::us);
  if (best->us > (1.0 - kLeastGain) * automatic->us) best = automatic;
  const MeasuredPlan* next = nullptr;
  for (const MeasuredPlan& other : measured) {
    if (other.plan != best->plan && (next == nullptr || other.us < next->us)) next = &other;
  }
  if (next == nullptr) fail("kernel table: all plans measured are {}", to_string(best->plan));
  return {.shape = shape,
          .tokens = tokens,
          .plan = best->plan,
          .us = best->us,
          .next = next->plan,
          .next_us = next->us,
          .automatic_us = automatic->us};
}

std::vector<ProductPlan> close_plans(std::span<const MeasuredPlan> measured, double factor) {
  std::vector<ProductPlan> close;
  if (measured.empty()) return close;
  const double best_us = std::ranges::min_element(measured, {}, &MeasuredPlan::us)->us;
  for (const MeasuredPlan& one : measured) {
    if (one.us <= factor * best_us || one.plan.kernel == ProductKernel::automatic) close.push_back(one.plan);
  }
  return close;
}

KernelTable::KernelTable(PlanDevice device, std::vector<KernelTableLine> lines)
    : device_(std::move(device)), lines_(std::move(lines)) {
  for (size_t i = 0; i < lines_.size(); ++i)
    add(i);
}

void KernelTable::add(size_t index) {
  const KernelTableLine& line = lines_[index];
  const std::string why = refusal(line.plan, line.shape, line.tokens.last, device_);
  if (!why.empty()) fail("{}: {}", to_string(line.plan), why);
  std::map<int64_t, size_t>& ranges = by_last_tokens_[line.shape];
  const auto behind = ranges.lower_bound(line.tokens.first);
  if (behind != ranges.end() && lines_[behind->second].tokens.first <= line.tokens.last) {
    const TokenRange other = lines_[behind->second].tokens;
    fail("tokens {}-{}, expected none of the same product's {}-{}", line.tokens.first, line.tokens.last,
         other.first, other.last);
  }
  ranges.emplace(line.tokens.last, index);
}

KernelTable KernelTable::parse(std::string_view text, std::string_view file) {
  if (text.size() > kMostBytes)
    fail<FileError>("kernel table {}: {} bytes, expected at most {}", file, text.size(), kMostBytes);
  enum class Expects : uint8_t { format, device, products } expects = Expects::format;
  KernelTable table({}, {});
  size_t number = 0;
  while (!text.empty()) {
    const std::string_view content = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(content.size() + 1, text.size()));
    LineReader line(file, ++number, content);
    if (line.is_empty()) continue;
    if (expects == Expects::format) {
      line.expect("format");
      line.number("the version of this format", 1, 1);
      line.end();
      expects = Expects::device;
    } else if (expects == Expects::device) {
      table.device_ = read_device(line);
      expects = Expects::products;
    } else {
      table.lines_.push_back(read_product(line));
      try {
        table.add(table.lines_.size() - 1);
      } catch (const Error& error) {
        fail<FileError>("kernel table {}: line {}: {}", file, number, error.what());
      }
    }
  }
  if (expects != Expects::products) {
    fail<FileError>("kernel table {}: line {}: expected \"{}\", found the end of the file", file, number + 1,
                    expects == Expects::format ? "format 1" : "device sm_... MULTIPROCESSORS NAME");
  }
  return table;
}

std::string KernelTable::text() const {
  std::string text(kHeader);
  fmt::format_to(std::back_inserter(text), "format 1\ndevice sm_{}{} {} {}\n", device_.major, device_.minor,
                 device_.multiprocessors, device_.name);
  const auto add_line = [&](std::string_view type, std::string_view op, const auto& rows, const auto& cols,
                            const std::string& tokens, const std::string& plan, const auto& us,
                            const std::string& next, const auto& next_us, const auto& automatic_us) {
    fmt::format_to(std::back_inserter(text), "{:6} {:10} {:>6} {:>6} {:>11} {:24} {:>9} {:24} {:>9} {:>12}\n",
                   type, op, rows, cols, tokens, plan, us, next, next_us, automatic_us);
  };
  add_line("# type", "op", "rows", "cols", "tokens", "plan", "us", "next", "next_us", "automatic_us");
  const auto shown = [](double us) { return fmt::format("{:.2f}", us); };
  for (const KernelTableLine& line : lines_) {
    add_line(minfer::name(line.shape.type), name(line.shape.op), line.shape.rows, line.shape.cols,
             fmt::format("{}-{}", line.tokens.first, line.tokens.last), to_string(line.plan), shown(line.us),
             to_string(line.next), shown(line.next_us), shown(line.automatic_us));
  }
  return text;
}

const ProductPlan* KernelTable::find(const ProductShape& shape, int64_t tokens) const {
  const auto ranges = by_last_tokens_.find(shape);
  if (ranges == by_last_tokens_.end()) return nullptr;
  const auto found = ranges->second.lower_bound(tokens);
  if (found == ranges->second.end()) return nullptr;
  const KernelTableLine& line = lines_[found->second];
  const bool is_measured = line.tokens.first <= tokens && line.plan.kernel != ProductKernel::automatic;
  return is_measured ? &line.plan : nullptr;
}

void KernelTable::check_device(const PlanDevice& device) const {
  if (device != device_) {
    fail(
        "kernel table: measured on {}, this device is {}: measure here with `minfer bench --kernels --tune "
        "FILE`",
        to_string(device_), to_string(device));
  }
}

}  // namespace minfer::cuda
