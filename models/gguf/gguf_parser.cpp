// The layout of a GGUF file (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md):
//   "GGUF", version u32, tensor count u64, key count u64
//   keys:    name, value type u32, value
//   tensors: name, number of dimensions u32, dimensions u64[], type u32, offset u64 from the start of the data
//   padding up to a multiple of general.alignment, then the data
#include "models/gguf/gguf_parser.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <string>
#include <utility>

#include "kernels/base/error.h"
#include "models/gguf/printable.h"

namespace minfer {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint32_t kMinVersion = 2;
constexpr uint32_t kMaxVersion = 3;

constexpr uint32_t kDefaultAlignment = 32;

constexpr uint64_t kMaxTensorNameBytes = 64;  // of the specification
constexpr uint32_t kMaxDims = 4;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // name, dimensions, type, offset

/// A tensor as the file states it, checked for itself but not yet against the data.
struct TensorRecord {
  HostTensor tensor;
  uint64_t bytes = 0;
  uint64_t offset = 0;  // from the start of the data
};

uint32_t read_version(ByteCursor& cursor) {
  const auto magic = cursor.read<uint32_t>("the magic number");
  if (magic != kMagic) {
    fail<FileError>("{}: magic number {:#010x}, expected {:#010x} (\"GGUF\")", cursor.file(), magic, kMagic);
  }
  const auto version = cursor.read<uint32_t>("the version");
  if (version != 0 && (version & 0xffff) == 0) {
    fail<FileError>("{}: a big-endian GGUF file (version {:#010x}), expected little-endian", cursor.file(),
                    version);
  }
  if (version < kMinVersion || version > kMaxVersion) {
    fail<FileError>("{}: GGUF version {}, expected {} or {}", cursor.file(), version, kMinVersion,
                    kMaxVersion);
  }
  return version;
}

uint64_t read_alignment(const GgufMetadata& metadata, std::string_view file) {
  constexpr std::string_view kKey = "general.alignment";
  metadata.expect_type(kKey, GgufType::u32);
  const auto alignment = static_cast<uint64_t>(metadata.get_int(kKey).value_or(kDefaultAlignment));
  if (alignment < kMinAlignment || !std::has_single_bit(alignment)) {
    fail<FileError>("{}: key '{}': {}, expected a power of two of at least {}", file, kKey, alignment,
                    kMinAlignment);
  }
  return alignment;
}

std::string read_tensor_name(ByteCursor& cursor) {
  const uint64_t offset = cursor.offset();
  const std::string_view name = cursor.read_string("a tensor name");
  if (name.empty() || name.size() > kMaxTensorNameBytes) {
    fail<FileError>("{}: tensor name '{}' at offset {} has {} bytes, expected 1 to {}", cursor.file(),
                    printable(name), offset, name.size(), kMaxTensorNameBytes);
  }
  return std::string(name);
}

/// Dimensions ne0 (contiguous) to ne3; those that the file leaves out are 1. Their product fits int64_t.
std::array<int64_t, kMaxDims> read_dims(ByteCursor& cursor, std::string_view tensor) {
  const auto num_dims = cursor.read<uint32_t>(tensor);
  if (num_dims < 1 || num_dims > kMaxDims) {
    fail<FileError>("{}: tensor {}: {} dimensions, expected 1 to {}", cursor.file(), printable(tensor),
                    num_dims, kMaxDims);
  }
  std::array<int64_t, kMaxDims> dims{1, 1, 1, 1};
  uint64_t elements = 1;
  for (uint32_t i = 0; i < num_dims; ++i) {
    const auto dim = cursor.read<uint64_t>(tensor);
    if (dim == 0 || dim > std::numeric_limits<int64_t>::max() / elements) {
      fail<FileError>("{}: tensor {}: dimension {} is {}, expected at least 1 and a product below 2^63",
                      cursor.file(), printable(tensor), i, dim);
    }
    elements *= dim;
    dims[i] = static_cast<int64_t>(dim);
  }
  return dims;
}

DType read_dtype(ByteCursor& cursor, std::string_view tensor) {
  const auto number = cursor.read<uint32_t>(tensor);
  const auto dtype = dtype_from_ggml(number);
  if (dtype) return *dtype;
  std::string known;
  for (const DTypeTraits& known_type : all_dtypes()) {
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", known_type.ggml_type, known_type.name);
  }
  fail<FileError>("{}: tensor {}: type number {}, expected one of {}", cursor.file(), printable(tensor),
                  number, known);
}

uint64_t size_of(const HostTensor& tensor, std::string_view file) {
  const DTypeTraits& type = traits(tensor.dtype);
  if (tensor.cols % type.block_elements != 0) {
    fail<FileError>("{}: tensor {}: rows of {} elements, expected a multiple of {} for type {}", file,
                    printable(tensor.name), tensor.cols, type.block_elements, type.name);
  }
  const uint64_t elements =
      static_cast<uint64_t>(tensor.cols) * static_cast<uint64_t>(tensor.rows * tensor.count);
  const uint64_t blocks = elements / type.block_elements;
  if (blocks > std::numeric_limits<uint64_t>::max() / type.block_bytes) {
    fail<FileError>("{}: tensor {}: {} elements of type {}, more than can be addressed", file,
                    printable(tensor.name), elements, type.name);
  }
  return blocks * type.block_bytes;
}

TensorRecord read_tensor(ByteCursor& cursor) {
  TensorRecord record;
  HostTensor& tensor = record.tensor;
  tensor.name = read_tensor_name(cursor);
  const auto dims = read_dims(cursor, tensor.name);
  if (dims[3] != 1) {
    fail<FileError>("{}: tensor {}: shape [{}, {}, {}, {}], expected at most 3 dimensions", cursor.file(),
                    printable(tensor.name), dims[0], dims[1], dims[2], dims[3]);
  }
  tensor.cols = dims[0];
  tensor.rows = dims[1];
  tensor.count = dims[2];
  tensor.dtype = read_dtype(cursor, tensor.name);
  record.bytes = size_of(tensor, cursor.file());
  record.offset = cursor.read<uint64_t>(tensor.name);
  return record;
}

std::vector<TensorRecord> read_tensors(ByteCursor& cursor, uint64_t count) {
  std::vector<TensorRecord> records;
  records.reserve(count);
  for (uint64_t i = 0; i < count; ++i)
    records.push_back(read_tensor(cursor));
  return records;
}

/// Points the tensors at their data. Data lies in the order of the tensors without overlap: else a small file
/// could state tensors that together need any amount of memory once a backend copies them.
std::vector<HostTensor> place_tensors(std::vector<TensorRecord> records, const ByteCursor& header_end,
                                      uint64_t alignment) {
  const uint64_t file_bytes = header_end.bytes().size();
  // Fits: the alignment has 32 bits.
  const uint64_t start = (header_end.offset() + alignment - 1) & ~(alignment - 1);
  const uint64_t data_bytes = file_bytes - std::min(start, file_bytes);
  std::vector<HostTensor> tensors;
  tensors.reserve(records.size());
  uint64_t previous_end = 0;
  for (TensorRecord& record : records) {
    const std::string name = printable(record.tensor.name);
    if (record.offset % alignment != 0) {
      fail<FileError>("{}: tensor {}: offset {}, expected a multiple of the alignment {}", header_end.file(),
                      name, record.offset, alignment);
    }
    if (record.offset < previous_end) {
      fail<FileError>("{}: tensor {}: offset {}, expected at least {}, where the tensor before it ends",
                      header_end.file(), name, record.offset, previous_end);
    }
    if (record.offset > data_bytes || record.bytes > data_bytes - record.offset) {
      fail<FileError>(
          "{}: tensor {}: {} bytes at offset {} of the data, beyond the end of the file of {} bytes",
          header_end.file(), name, record.bytes, record.offset, file_bytes);
    }
    record.tensor.data = header_end.bytes().data() + start + record.offset;
    tensors.push_back(std::move(record.tensor));
    previous_end = record.offset + record.bytes;
  }
  return tensors;
}

constexpr int64_t kMaxParts = 1000;  // each is a mapping; the largest models in use have about 200

std::string part_suffix(uint32_t index, uint32_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", index + 1, count);
}

}  // namespace

GgufHeader parse_gguf(std::span<const std::byte> bytes, std::string_view file) {
  ByteCursor cursor(bytes, file);
  const uint32_t version = read_version(cursor);
  const auto num_tensors = cursor.read<uint64_t>("the number of tensors");
  const auto num_keys = cursor.read<uint64_t>("the number of metadata keys");
  if (num_tensors > kMaxTensors)
    fail<FileError>("{}: {} tensors, expected at most {}", file, num_tensors, kMaxTensors);
  GgufMetadata metadata = GgufMetadata::parse(cursor, num_keys);
  const uint64_t alignment = read_alignment(metadata, file);
  cursor.expect_room(num_tensors, kMinTensorBytes, "the list of tensors");
  std::vector<TensorRecord> records = read_tensors(cursor, num_tensors);
  return {version, std::move(metadata), place_tensors(std::move(records), cursor, alignment)};
}

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
