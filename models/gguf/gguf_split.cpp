#include "models/gguf/gguf_split.h"

#include <string>

namespace minfer {
namespace {

constexpr int64_t kMaxParts = 1000;  // each is a mapping; the largest models in use have about 200

std::string part_suffix(uint32_t index, uint32_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", index + 1, count);
}

}  // namespace

GgufSplit read_split(const GgufMetadata& metadata, std::string_view file) {
  const int64_t count = metadata.get_int("split.count").value_or(1);
  // llama.cpp writes a count of 0 into a model that was merged again.
  if (count == 0 || count == 1) return {};
  if (count < 0 || count > kMaxParts) {
    fail<FileError>("{}: key 'split.count': {}, expected 0 to {}", file, count, kMaxParts);
  }
  const auto index = metadata.get_int("split.no");
  if (!index) metadata.fail_missing("split.no");
  if (*index < 0 || *index >= count) {
    fail<FileError>("{}: key 'split.no': {}, expected 0 to {}", file, *index, count - 1);
  }
  return {static_cast<uint32_t>(*index), static_cast<uint32_t>(count)};
}

std::filesystem::path split_part_path(const std::filesystem::path& first, uint32_t index, uint32_t count) {
  const std::string name = first.filename().string();
  const std::string suffix = part_suffix(0, count);
  if (!name.ends_with(suffix)) {
    fail<FileError>("{}: the first of {} parts, expected a name that ends in '{}'", first.string(), count,
                    suffix);
  }
  const std::string prefix = name.substr(0, name.size() - suffix.size());
  return first.parent_path() / (prefix + part_suffix(index, count));
}

}  // namespace minfer
