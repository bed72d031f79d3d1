#pragma once

#include <filesystem>

#include "server/bench/http_client.h"
#include "server/hub/hub_name.h"

namespace minfer {

struct FetchOptions {
  int64_t stall_ns = 30'000'000'000;  ///< a connection that brings nothing for so long is broken
  int64_t backoff_ns = 500'000'000;  ///< before a connection's second try; each further wait is twice as long
};

/// Fetches a file into `partial` over up to eight connections, one for each eighth, and goes on where an earlier fetch broke off. A broken
/// connection is tried again, at most six times in a row without 256 KiB of progress. If the server ignores ranges, one connection reads
/// everything. Standard error shows the progress: a line that changes on a terminal, else a line now and then.
///
/// Throws FileError if the server refuses or sends more than file.bytes, a connection stays broken, or `partial` cannot be written (it is
/// then kept); or if the hash is not file.sha256 (it is then removed).
void fetch_file(HttpClient& client, const std::string& target, const HubFile& file,
                const std::filesystem::path& partial, const FetchOptions& options);

}  // namespace minfer
