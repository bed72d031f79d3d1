#include "models/gguf/gguf.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "models/gguf/gguf_parser.h"
#include "models/gguf/mapped_file.h"
#include "models/gguf/nearest_name.h"
#include "models/gguf/printable.h"

namespace minfer {

/// The bytes of one file of a model. Not moved once made: headers refer to the name.
struct GgufPart {
  explicit GgufPart(const std::filesystem::path& path)
      : name(path.string()), mapping(path), bytes(mapping->bytes()) {}
  GgufPart(std::span<const std::byte> memory, std::string label) : name(std::move(label)), bytes(memory) {}

  void check_intact() const {
    if (mapping) mapping->check_intact();
  }

  std::string name;
  std::optional<MappedFile> mapping;  // none for a file in memory
  std::span<const std::byte> bytes;
};

namespace {

/// A model as its files state it.
struct Model {
  std::vector<std::shared_ptr<const GgufPart>> parts;
  GgufHeader header;  // of the first part, with the tensors of all parts
};

/// Parses a file. A file that shrinks meanwhile reads as zeros; then the error is the shrinking, not an error in the zeros.
GgufHeader parse_part(const GgufPart& part) {
  try {
    GgufHeader header = parse_gguf(part.bytes, part.name);
    part.check_intact();
    return header;
  } catch (const FileError&) {
    part.check_intact();
    throw;
  }
}

std::shared_ptr<const GgufPart> map_part(const std::filesystem::path& path, uint32_t index, uint32_t count) {
  try {
    return std::make_shared<GgufPart>(path);
  } catch (const FileError& error) {
    fail<FileError>("part {} of {}: {}", index + 1, count, error.what());
  }
}

/// Adds part `index` of `count`; of its metadata only the split keys matter.
void add_part(Model& model, std::shared_ptr<const GgufPart> part, uint32_t index, uint32_t count) {
  GgufHeader header = parse_part(*part);
  const GgufSplit split = read_split(header.metadata, part->name);
  if (split.index != index || split.count != count) {
    fail<FileError>("{}: part {} of {} by split.no and split.count, expected part {} of {}", part->name,
                    split.index + 1, split.count, index + 1, count);
  }
  std::vector<HostTensor>& tensors = model.header.tensors;
  if (tensors.size() + header.tensors.size() > kMaxTensors) {
    fail<FileError>("{}: {} tensors up to part {}, expected at most {}", part->name,
                    tensors.size() + header.tensors.size(), index + 1, kMaxTensors);
  }
  std::ranges::move(header.tensors, std::back_inserter(tensors));
  model.parts.push_back(std::move(part));
}

/// The first file and the other parts that it says there are.
Model read_model(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::status(path, error).type() == std::filesystem::file_type::not_found)
    fail<FileError>("{}: no such file{}", path.string(), did_you_mean_path(path));
  const auto first = std::make_shared<GgufPart>(path);
  Model model{{first}, parse_part(*first)};
  const GgufMetadata& metadata = model.header.metadata;
  const GgufSplit split = read_split(metadata, first->name);
  if (split.index != 0) {
    fail<FileError>("{}: part {} of {}, expected the first part", first->name, split.index + 1, split.count);
  }
  for (uint32_t index = 1; index < split.count; ++index) {
    add_part(model, map_part(split_part_path(path, index, split.count), index, split.count), index,
             split.count);
  }
  const size_t num_tensors = model.header.tensors.size();
  const auto expected = metadata.get_int("split.tensors.count");
  if (split.count > 1 && expected && std::cmp_not_equal(*expected, num_tensors)) {
    fail<FileError>("{}: {} tensors in {} parts, expected {} from split.tensors.count", first->name,
                    num_tensors, split.count, *expected);
  }
  return model;
}

}  // namespace

GgufFile::GgufFile(Parts parts, GgufHeader header)
    : GgufMetadata(std::move(header.metadata)),
      parts_(std::move(parts)),
      version_(header.version),
      tensors_(std::move(header.tensors)),
      index_(static_cast<uint32_t>(tensors_.size()), [this](uint32_t i) { return tensor_name(i); }) {
  const auto twice = index_.duplicate([this](uint32_t i) { return tensor_name(i); });
  if (twice) fail<FileError>("{}: tensor {} occurs twice, expected once", name(), printable(*twice));
}

GgufFile GgufFile::open(const std::filesystem::path& path) {
  Model model = read_model(path);
  return {std::move(model.parts), std::move(model.header)};
}

GgufFile GgufFile::from_memory(std::span<const std::byte> bytes, std::string name) {
  if (reinterpret_cast<uintptr_t>(bytes.data()) % kMinAlignment != 0) {
    fail("{}: a model in memory at {}, expected an address that is a multiple of {}", name,
         static_cast<const void*>(bytes.data()), kMinAlignment);
  }
  const auto part = std::make_shared<GgufPart>(bytes, std::move(name));
  GgufHeader header = parse_part(*part);
  const GgufSplit split = read_split(header.metadata, part->name);
  if (split.count != 1) {
    fail<FileError>("{}: part {} of {}, expected a whole model in memory", part->name, split.index + 1,
                    split.count);
  }
  return {{part}, std::move(header)};
}

const std::string& GgufFile::name() const {
  return parts_.front()->name;
}

size_t GgufFile::file_bytes() const {
  size_t bytes = 0;  // cannot overflow: all of them are mapped at once
  for (const auto& part : parts_)
    bytes += part->bytes.size();
  return bytes;
}

void GgufFile::check_intact() const {
  for (const auto& part : parts_)
    part->check_intact();
}

const HostTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto found = index_.find(name, [this](uint32_t i) { return tensor_name(i); });
  return found ? &tensors_[*found] : nullptr;
}

}  // namespace minfer
