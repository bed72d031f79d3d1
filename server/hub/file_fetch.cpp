#include "server/hub/file_fetch.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "models/gguf/printable.h"
#include "profiling/text/table.h"
#include "server/terminal/terminal.h"

namespace minfer {
namespace {

constexpr size_t kStripes = 8;
constexpr int64_t kLeastStripeBytes = 1 << 20;
constexpr int64_t kWorthwhileBytes = 256 << 10;  ///< a try that brought as much was no failure
constexpr int kMostFailures = 6;

/// The partial file holds the whole file's bytes, and behind them a mark for each stripe: the stripe is there up to this byte of the file.
using Marks = std::array<int64_t, kStripes>;

/// The line on standard error.
class Progress {
 public:
  /// `fetched`: bytes that an earlier fetch brought.
  Progress(const HubFile& file, int64_t fetched) : file_(file), at_begin_(fetched) {}
  ~Progress() { show_progress(""); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(int64_t fetched) {
    const bool is_live = is_terminal(stderr);
    const int64_t now = now_ns(), period_ns = is_live ? 200'000'000 : 30'000'000'000;
    if (fetched == file_.bytes && is_live) show_progress("checking its SHA-256");
    if (now - shown_ns_ < period_ns || fetched == file_.bytes) return;
    shown_ns_ = now;
    const double bytes_ns = static_cast<double>(fetched - at_begin_) / static_cast<double>(now - begin_ns_);
    const double left_s = std::max(static_cast<double>(file_.bytes - fetched) / bytes_ns * 1e-9, 1.0);
    const std::string speed =
        fetched == at_begin_ ? "nothing comes"
                             : fmt::format("{} MB/s, {:.0f} {} left", three_digits(bytes_ns * 1e3),
                                           left_s < 100 ? left_s : left_s / 60, left_s < 100 ? "s" : "min");
    const std::string text =
        fmt::format("{} % of {}, {}", 100 * fetched / file_.bytes, size_text(file_.bytes), speed);
    is_live ? show_progress(text) : print_notice(fmt::format("minfer: {}: {}\n", file_.name(), text));
  }

 private:
  const HubFile& file_;
  const int64_t at_begin_;
  const int64_t begin_ns_ = now_ns();
  int64_t shown_ns_ = begin_ns_;
};

class FileFetch {
 public:
  FileFetch(HttpClient& client, const std::string& target, const HubFile& file,
            const std::filesystem::path& partial, const FetchOptions& options, size_t stripes)
      : client_(client), target_(target), file_(file), path_(partial), options_(options), stripes_(stripes) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    struct stat status {};
    if (fd_ < 0 || ::fstat(fd_, &status) != 0) fail<FileError>("{}", disk_error());
    const auto partial_bytes = static_cast<int64_t>(file.bytes + sizeof(Marks));
    Marks marks{};
    if (status.st_size == partial_bytes) (void)::pread(fd_, &marks, sizeof marks, file.bytes);
    const auto count = static_cast<int64_t>(stripes);
    const int64_t stripe_bytes = std::max((file.bytes + count - 1) / count, kLeastStripeBytes);
    for (size_t i = 0; i < stripes; ++i) {
      const int64_t begin = std::min(static_cast<int64_t>(i) * stripe_bytes, file.bytes);
      stripes_[i].fetch = this;
      stripes_[i].end = std::min(begin + stripe_bytes, file.bytes);
      stripes_[i].done = std::clamp(std::max(marks[0], marks[i]), begin, stripes_[i].end);
    }
    if (::ftruncate(fd_, partial_bytes) != 0) problem_ = disk_error();
    save_marks();  // takes their place on the disk
  }
  ~FileFetch() {
    for (Stripe& stripe : stripes_)
      client_.abort(stripe, "");
    ::close(fd_);
  }
  FileFetch(const FileFetch&) = delete;
  FileFetch& operator=(const FileFetch&) = delete;

  /// False: the server ignores ranges, so one stripe must do.
  bool run() {
    constexpr int64_t kPeriodNs = 100'000'000;
    Progress progress(file_, fetched());
    while (fetched() < file_.bytes && problem_.empty() && !ignores_ranges_) {
      for (Stripe& stripe : stripes_)
        if (!stripe.is_open && stripe.done < stripe.end && now_ns() >= stripe.retry_ns) ask(stripe);
      client_.run_until(now_ns() + kPeriodNs);
      for (Stripe& stripe : stripes_)
        if (stripe.is_open && now_ns() - stripe.heard_ns > options_.stall_ns)
          client_.abort(stripe, "nothing comes any more");
      save_marks();
      progress.show(fetched());
    }
    if (!problem_.empty()) fail<FileError>("{}: {}", printable(file_.path), problem_);
    if (ignores_ranges_) return false;
    check_hash();
    if (::ftruncate(fd_, file_.bytes) != 0 || ::fdatasync(fd_) != 0) fail<FileError>("{}", disk_error());
    return true;
  }

 private:
  /// A part of the file, and the connection that brings it.
  struct Stripe final : HttpResponseHandler {
    void on_status(int code) override {
      status = code;
      place = status == 206 ? asked : 0;
    }
    void on_body(std::string_view bytes, int64_t time_ns) override {
      heard_ns = time_ns;
      fetch->take(*this, bytes);
    }
    void on_end(const std::string& error) override { fetch->end(*this, error); }

    FileFetch* fetch = nullptr;
    // Places in the file.
    int64_t done = 0;  ///< the stripe is there up to here
    int64_t end = 0;
    int64_t asked = 0;  ///< the first byte of the last request
    int64_t place = 0;  ///< of the next byte that comes
    int64_t heard_ns = 0, retry_ns = 0;
    int status = 0, failures = 0;
    bool is_open = false;
  };

  std::string disk_error() const {
    return fmt::format("cannot write {}: {}", path_.string(), std::strerror(errno));
  }

  int64_t fetched() const {
    int64_t bytes = file_.bytes;
    for (const Stripe& stripe : stripes_)
      bytes -= stripe.end - stripe.done;
    return bytes;
  }

  void save_marks() const {
    Marks marks{};
    std::ranges::transform(stripes_, marks.begin(), &Stripe::done);
    (void)::pwrite(fd_, &marks, sizeof marks, file_.bytes);  // refused: the next fetch asks for more
  }

  void ask(Stripe& stripe) {
    stripe.asked = stripe.done;
    stripe.heard_ns = now_ns();
    stripe.status = 0;
    stripe.is_open = true;
    const std::string range = fmt::format("Range: bytes={}-{}", stripe.done, stripe.end - 1);
    client_.send({.target = target_, .headers = {range}}, stripe);
  }

  void take(Stripe& stripe, std::string_view bytes) {
    if ((stripe.status != 200 && stripe.status != 206) || !problem_.empty() || ignores_ranges_) return;
    ignores_ranges_ = stripe.status == 200 && stripes_.size() > 1;
    if (ignores_ranges_) return client_.stop();
    const auto known = std::clamp<int64_t>(stripe.done - stripe.place, 0, std::ssize(bytes));
    stripe.place += known;
    bytes.remove_prefix(static_cast<size_t>(known));
    if (std::ssize(bytes) > stripe.end - stripe.place)
      problem_ = fmt::format("the server sends more than the {} bytes that the hub announced", file_.bytes);
    while (!bytes.empty() && problem_.empty()) {
      const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), stripe.place);
      if (written <= 0) problem_ = disk_error() + "; the bytes so far are kept";
      stripe.done = stripe.place += std::max<ssize_t>(written, 0);
      bytes.remove_prefix(static_cast<size_t>(std::max<ssize_t>(written, 0)));
    }
    if (!problem_.empty()) client_.stop();
  }

  void end(Stripe& stripe, const std::string& error) {
    stripe.is_open = false;
    client_.stop();
    if (stripe.done == stripe.end) return;
    const bool has_bytes = stripe.status == 200 || stripe.status == 206;
    const std::string reason = !error.empty() ? error
                               : has_bytes    ? "the answer ends early"
                                              : fmt::format("the server answers {}", stripe.status);
    for (const int refusal : {401, 403, 404, 410, 416})
      if (error.empty() && stripe.status == refusal) problem_ = reason;
    stripe.failures = stripe.done - stripe.asked >= kWorthwhileBytes ? 0 : stripe.failures + 1;
    if (stripe.failures > kMostFailures)
      problem_ = fmt::format("{}, {} times in a row; the bytes so far are kept", reason, stripe.failures);
    stripe.retry_ns = stripe.failures == 0 ? 0 : now_ns() + (options_.backoff_ns << (stripe.failures - 1));
  }

  void check_hash() const {
    const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> digest(EVP_MD_CTX_new(), EVP_MD_CTX_free);
    EVP_DigestInit_ex(digest.get(), EVP_sha256(), nullptr);
    std::string buffer(1 << 20, '\0'), text;
    for (int64_t at = 0, count = 0; at < file_.bytes; at += count) {
      const auto size = static_cast<size_t>(std::min<int64_t>(std::ssize(buffer), file_.bytes - at));
      count = ::pread(fd_, buffer.data(), size, at);
      if (count <= 0) fail<FileError>("cannot read {}", path_.string());
      EVP_DigestUpdate(digest.get(), buffer.data(), static_cast<size_t>(count));
    }
    std::array<unsigned char, 32> hash{};
    EVP_DigestFinal_ex(digest.get(), hash.data(), nullptr);
    for (const unsigned char byte : hash)
      text += fmt::format("{:02x}", byte);
    if (text == file_.sha256) return;
    ::unlink(path_.c_str());
    fail<FileError>("{}: the bytes that came have the SHA-256 {}, the hub says {}; they are removed",
                    printable(file_.path), text, file_.sha256);
  }

  HttpClient& client_;
  const std::string& target_;
  const HubFile& file_;
  const std::filesystem::path path_;
  const FetchOptions& options_;
  int fd_ = -1;
  std::vector<Stripe> stripes_;
  bool ignores_ranges_ = false;
  std::string problem_;  ///< ends the fetch; empty: none
};

}  // namespace

void fetch_file(HttpClient& client, const std::string& target, const HubFile& file,
                const std::filesystem::path& partial, const FetchOptions& options) {
  if (!FileFetch(client, target, file, partial, options, kStripes).run())
    FileFetch(client, target, file, partial, options, 1).run();
}

}  // namespace minfer
