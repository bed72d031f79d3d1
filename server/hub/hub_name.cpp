#include "server/hub/hub_name.h"

#include <algorithm>
#include <regex>

#include <fmt/ranges.h>

#include "kernels/base/error.h"
#include "models/gguf/gguf_parser.h"
#include "models/gguf/printable.h"
#include "profiling/text/table.h"

namespace minfer {
namespace {

/// The name behind the last '/'.
std::string file_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

/// Matches the end of a file's name; the first two groups are the part's number and the number of parts of a split model.
const std::regex& path_end() {
  static const std::regex expression(R"((?:-(\d{5})-of-(\d{5}))?\.gguf$)");
  return expression;
}

}  // namespace

HubName HubName::parse(const std::string& spec) {
  // The rules for names of huggingface_hub's validate_repo_id(): no "--" and "..", no '-' and '.' at the ends.
  static const std::regex kForm(R"((?:hf:)?(\w[\w.-]{0,95}/\w[\w.-]{0,95})(?::([\w.-]{1,64}))?)");
  static const std::regex kForbidden(R"(--|\.\.|[.-]/|[.-]$)");
  std::smatch match;
  if (spec.size() > 300 || !std::regex_match(spec, match, kForm) ||
      std::regex_search(match[1].str(), kForbidden))
    fail("{}: expected hf:ORG/REPO[:QUANT], such as hf:ggml-org/gemma-3-1b-it-GGUF:Q4_K_M", printable(spec));
  return {match[1], match[2]};
}

std::string HubFile::name() const {
  return printable(file_name(path));
}

bool is_model_path(const std::string& path) {
  static const std::regex kNoModel("mmproj|imatrix|mtp-|eagle3-|dflash-");
  const std::string name = file_name(path);
  std::smatch end;
  return std::regex_search(name, end, path_end()) && (!end[1].matched || end[1] == "00001") &&
         !std::regex_search(name, kNoModel);
}

bool has_quant(const std::string& path, const std::string& quant) {
  const std::string literal = std::regex_replace(quant, std::regex(R"(\.)"), R"(\.)");
  return std::regex_search(path, std::regex("(^|[/._-])" + literal + "[/.-]", std::regex::icase));
}

std::string quant_of(const std::string& path) {
  static const std::regex kQuant(
      R"((?:^|[._-])((?:UD-)?(?:I?Q[1-9]|TQ[12]|BF16|FP?16|FP?32|MXFP4|NVFP4)\w*)(?=$|[.-]))",
      std::regex::icase);
  const std::string name = std::regex_replace(file_name(path), path_end(), "");
  std::string found = name;
  for (std::sregex_iterator match(name.begin(), name.end(), kQuant), end; match != end; ++match)
    found = (*match)[1];
  return printable(found, 40);
}

std::vector<HubFile> choose_files(std::vector<HubFile> files, const HubName& name, const std::string& place) {
  static const std::regex kSafe(R"((?:(?!\.\.?/)[\w.+@=,()~-]{1,200}/)*[\w.+@=,()~-]{1,200})");
  std::ranges::sort(files, {}, &HubFile::path);
  std::vector<std::string> wanted{name.quant}, quants;
  if (name.quant.empty()) wanted = {"Q4_K_M", "Q8_0", ""};
  const HubFile* found = nullptr;
  for (const std::string& quant : wanted) {
    for (const HubFile& file : files) {
      if (found != nullptr || !is_model_path(file.path)) continue;
      quants.push_back(quant_of(file.path));
      if (quant.empty() || has_quant(file.path, quant)) found = &file;
    }
  }
  if (quants.empty()) quants = {"none"};
  if (found == nullptr)
    fail<FileError>("{}: {} has no such GGUF file; there are: {}", name.text(), place,
                    fmt::join(quants, ", "));
  std::smatch end;
  std::regex_search(found->path, end, path_end());
  std::vector<HubFile> parts{*found};
  const auto count = static_cast<uint32_t>(end[2].matched ? std::stoul(end[2]) : 1);
  for (uint32_t i = 1; i < count; ++i) {
    const std::string path = split_part_path(found->path, i, count).string();
    const auto part = std::ranges::find(files, path, &HubFile::path);
    if (part == files.end()) fail<FileError>("{}: {} lacks {}", name.text(), place, printable(path));
    parts.push_back(*part);
  }
  if (found->path.size() > 1'000 || !std::regex_match(found->path, kSafe))
    fail<FileError>("{}: {} has the path \"{}\", expected one that stays inside the repository", name.text(),
                    place, printable(found->path));
  return parts;
}

std::string size_text(int64_t bytes) {
  const double mbytes = static_cast<double>(bytes) * 1e-6;
  return mbytes < 1000 ? three_digits(mbytes) + " MB" : three_digits(mbytes * 1e-3) + " GB";
}

}  // namespace minfer
