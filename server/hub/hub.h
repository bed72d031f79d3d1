#pragma once

#include <filesystem>
#include <string>

#include "server/hub/file_fetch.h"
#include "server/hub/hub_name.h"

namespace minfer {

/// Which hub is asked, and where its files are kept.
struct HubSettings {
  std::string endpoint;         ///< http[s]://HOST[:PORT][/PATH]
  std::string token;            ///< goes to the endpoint alone; empty: none
  std::filesystem::path cache;  ///< see HubCache
  bool offline = false;         ///< the hub is not asked
  FetchOptions fetch = {};
};

/// As huggingface_hub has them, from HF_ENDPOINT, HF_TOKEN or the file `token` in HF_HOME, HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME and
/// HF_HUB_OFFLINE.
HubSettings hub_settings();

/// The path of a model's first file in the cache. Asks the hub which files the model has, and fetches those that are missing, with its
/// progress on standard error. Uses the cache alone, and says so, if the hub cannot be reached. Throws FileError if there is no such
/// model, the disk has no room, or an answer is malformed or not what was announced.
std::filesystem::path hub_model(const HubName& name, const HubSettings& settings);

/// The same by hub_settings() for a `spec` that begins with hf:; another spec is returned as it is.
std::string local_model(const std::string& spec);

}  // namespace minfer
