#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace minfer {

/// A model of a hub that speaks Hugging Face's API, as a user names it: hf:ORG/REPO[:QUANT].
struct HubName {
  static constexpr std::string_view kPrefix = "hf:";
  std::string repo;   ///< ORG/REPO, by the hub's rules: so it is safe in a path
  std::string quant;  ///< such as Q4_K_M; empty: none is named

  /// Throws Error if `spec` is no such name.
  static HubName parse(const std::string& spec);
  std::string text() const { return std::string(kPrefix) + repo + (quant.empty() ? "" : ":") + quant; }
};

/// A file of a repository.
struct HubFile {
  std::string path;  ///< within the repository, with '/' between folders
  int64_t bytes = 0;
  std::string sha256;  ///< in hexadecimal

  std::string name() const;  ///< without folders, fit for a terminal
};

/// True for a GGUF file that is a model or the first part of one. The names of projectors, importance matrices and draft models say that
/// they are none, as for llama.cpp.
bool is_model_path(const std::string& path);

/// True if the path has this quantisation between two of "/._-", in any case.
bool has_quant(const std::string& path, const std::string& quant);

/// The quantisation that a file's name ends in, as its author wrote it; without one: the name.
std::string quant_of(const std::string& path);

/// The file, or the parts in order, of the model that `name` means: the first path in alphabetical order that has its quantisation.
/// Without one: Q4_K_M, else Q8_0, else the first. `place` says in errors who has the files. Throws FileError naming the quantisations
/// that there are, the part that is missing, or a path that leads out of the repository or has other characters than a URL takes.
std::vector<HubFile> choose_files(std::vector<HubFile> files, const HubName& name, const std::string& place);

/// "4.92 GB"
std::string size_text(int64_t bytes);

}  // namespace minfer
