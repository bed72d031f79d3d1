#include "models/gguf/gguf.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "models/gguf/gguf_parser.h"
#include "models/gguf/mapped_file.h"
#include "models/gguf/nearest_name.h"
#include "models/gguf/printable.h"

namespace minfer {
namespace {

/// The bytes of one file of a model. Not moved once made: headers refer to the name.
struct Part {
  explicit Part(const std::filesystem::path& path)
      : name(path.string()), mapping(path), bytes(mapping->bytes()) {}
  Part(std::span<const std::byte> memory, std::string label) : name(std::move(label)), bytes(memory) {}

  void check_intact() const {
    if (mapping) mapping->check_intact();
  }

  std::string name;
  std::optional<MappedFile> mapping;  // none for a file in memory
  std::span<const std::byte> bytes;
};

/// A model as its files state it.
struct Model {
  std::vector<std::unique_ptr<Part>> parts;
  GgufHeader header;  // of the first part, with the tensors of all parts

  const std::string& name() const { return parts.front()->name; }
};

/// Parses a file. A file that shrinks meanwhile reads as zeros; then the error is the shrinking, not an error in the zeros.
GgufHeader parse(const Part& part) {
  try {
    GgufHeader header = parse_gguf(part.bytes, part.name);
    part.check_intact();
    return header;
  } catch (const FileError&) {
    part.check_intact();
    throw;
  }
}

Model read_first(std::unique_ptr<Part> part) {
  GgufHeader header = parse(*part);
  Model model{{}, std::move(header)};
  model.parts.push_back(std::move(part));
  return model;
}

std::unique_ptr<Part> map_part(const std::filesystem::path& path, uint32_t index, uint32_t count) {
  try {
    return std::make_unique<Part>(path);
  } catch (const FileError& error) {
    fail<FileError>("part {} of {}: {}", index + 1, count, error.what());
  }
}

/// Adds part `index` of `count`; of its metadata only the split keys matter.
void add_part(Model& model, std::unique_ptr<Part> part, uint32_t index, uint32_t count) {
  GgufHeader header = parse(*part);
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
  Model model = read_first(std::make_unique<Part>(path));
  const GgufMetadata& metadata = model.header.metadata;
  const GgufSplit split = read_split(metadata, model.name());
  if (split.index != 0) {
    fail<FileError>("{}: part {} of {}, expected the first part", model.name(), split.index + 1, split.count);
  }
  for (uint32_t index = 1; index < split.count; ++index) {
    add_part(model, map_part(split_part_path(path, index, split.count), index, split.count), index,
             split.count);
  }
  const size_t num_tensors = model.header.tensors.size();
  const auto expected = metadata.get_int("split.tensors.count");
  if (split.count > 1 && expected && std::cmp_not_equal(*expected, num_tensors)) {
    fail<FileError>("{}: {} tensors in {} parts, expected {} from split.tensors.count", model.name(),
                    num_tensors, split.count, *expected);
  }
  return model;
}

}  // namespace

struct GgufFile::Impl {
  explicit Impl(Model files)
      : model(std::move(files)),
        index(static_cast<uint32_t>(tensors().size()), [this](uint32_t i) { return tensor_name(i); }) {
    const auto twice = index.duplicate([this](uint32_t i) { return tensor_name(i); });
    if (twice) fail<FileError>("{}: tensor {} occurs twice, expected once", model.name(), printable(*twice));
  }

  const std::vector<HostTensor>& tensors() const { return model.header.tensors; }
  std::string_view tensor_name(uint32_t i) const { return tensors()[i].name; }

  Model model;
  NameIndex index;  // of the tensors
};

GgufFile::GgufFile(std::unique_ptr<Impl> impl)
    : GgufMetadata(std::move(impl->model.header.metadata)), impl_(std::move(impl)) {}
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

GgufFile GgufFile::open(const std::filesystem::path& path) {
  return GgufFile(std::make_unique<Impl>(read_model(path)));
}

GgufFile GgufFile::from_memory(std::span<const std::byte> bytes, std::string name) {
  if (reinterpret_cast<uintptr_t>(bytes.data()) % kMinAlignment != 0) {
    fail("{}: a model in memory at {}, expected an address that is a multiple of {}", name,
         static_cast<const void*>(bytes.data()), kMinAlignment);
  }
  Model model = read_first(std::make_unique<Part>(bytes, std::move(name)));
  const GgufSplit split = read_split(model.header.metadata, model.name());
  if (split.count != 1) {
    fail<FileError>("{}: part {} of {}, expected a whole model in memory", model.name(), split.index + 1,
                    split.count);
  }
  return GgufFile(std::make_unique<Impl>(std::move(model)));
}

const std::string& GgufFile::name() const {
  return impl_->model.name();
}
uint32_t GgufFile::version() const {
  return impl_->model.header.version;
}

size_t GgufFile::file_bytes() const {
  size_t bytes = 0;  // cannot overflow: all of them are mapped at once
  for (const auto& part : impl_->model.parts)
    bytes += part->bytes.size();
  return bytes;
}

void GgufFile::check_intact() const {
  for (const auto& part : impl_->model.parts)
    part->check_intact();
}

std::span<const HostTensor> GgufFile::tensors() const {
  return impl_->tensors();
}

const HostTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto found = impl_->index.find(name, [this](uint32_t i) { return impl_->tensor_name(i); });
  return found ? &impl_->tensors()[*found] : nullptr;
}

}  // namespace minfer
