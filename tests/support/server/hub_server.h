#pragma once

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/server/scripted_server.h"

namespace minfer::test {

/// In hexadecimal.
std::string sha256_of(std::string_view bytes);

/// A hub on 127.0.0.1 with one repository, org/repo: Hugging Face's API on one port, and on another the store to which it redirects. As it
/// stands it answers well; the members make it fail.
class HubServer {
 public:
  struct File {
    std::string path, content;
    std::string sha256 = sha256_of(content);
  };

  explicit HubServer(std::vector<File> files);

  std::string url() const { return hub_.url(); }
  /// Heads of the requests so far, as they came to a port.
  std::vector<std::string> hub_requests() const { return copy_of(hub_heads_); }
  std::vector<std::string> store_requests() const { return copy_of(store_heads_); }
  int64_t stored_bytes_sent() const { return bytes_sent_; }

  static constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

  /// The answer to the next requests for the listing.
  void set_listing(std::string listing);
  std::atomic<int> hub_status = 200;
  /// The store answers requests by `fault` from now on; where it returns false, or with nullptr, as it should. Waits until no request is
  /// answered by an earlier fault.
  void set_fault(Script fault);
  std::atomic<int> breaks = 0;             ///< answers of the store that still break
  std::atomic<int64_t> break_after_bytes;  ///< of the body
  std::atomic<bool> ignores_ranges = false;
  std::atomic<int64_t> wrong_byte = -1;  ///< of a file: the store sends another one

  std::string true_listing() const;

 private:
  std::string shown_listing() const;
  bool answer_hub(ServedRequest& request);
  bool answer_store(ServedRequest& request);
  std::vector<std::string> copy_of(const std::vector<std::string>& heads) const;
  void note(std::vector<std::string>& heads, const ServedRequest& request);

  const std::vector<File> files_;
  std::string listing_;  ///< empty: the true one
  Script fault_;
  std::shared_mutex fault_mutex_;
  mutable std::mutex mutex_;
  std::vector<std::string> hub_heads_, store_heads_;
  std::atomic<int64_t> bytes_sent_ = 0;
  ScriptedServer store_, hub_;
};

}  // namespace minfer::test
