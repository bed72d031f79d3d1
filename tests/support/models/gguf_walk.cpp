#include "tests/support/models/gguf_walk.h"

#include <stdexcept>

namespace minfer::test {
namespace {

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

/// Returns whether `get` returned; false if the value is not of its type.
template <class Get>
bool returns(const Get& get) {
  try {
    get();
    return true;
  } catch (const FileError&) {
    return false;
  }
}

uint64_t read_value(const GgufFile& file, const GgufFile::Entry& entry) {
  uint64_t sum = file.describe(entry.key).size();
  int types = 0;
  types += returns([&] { sum += static_cast<uint64_t>(file.require_int(entry.key)); });
  types += returns([&] { sum += file.require_float(entry.key) > 0.0; });
  types += returns([&] { sum += *file.get_bool(entry.key); });
  types += returns([&] {
    for (const char c : file.require_string(entry.key))
      sum += static_cast<uint8_t>(c);
  });
  types += returns([&] {
    const auto values = file.get_strings(entry.key);
    require(values.size() == entry.count, "an array of strings lacks some");
    for (const auto value : values)
      sum += value.size();
  });
  types += returns([&] {
    const auto values = file.get_ints(entry.key);
    require(values.size() == entry.count, "an array of integers lacks some");
    for (const int64_t value : values)
      sum += static_cast<uint64_t>(value);
  });
  types += returns([&] {
    const auto values = file.get_floats(entry.key);
    require(values.size() == entry.count, "an array of floats lacks some");
    for (const float value : values)
      sum += value > 0.0F;
  });
  require(types == 1 || (types == 0 && entry.element_type == GgufType::u64), "a value is not of one type");
  return sum;
}

}  // namespace

uint64_t read_everything(const GgufFile& file) {
  uint64_t sum = 0;
  for (const GgufFile::Entry& entry : file.metadata()) {
    require(file.has(entry.key), "a key is not found");
    sum += read_value(file, entry);
  }
  size_t tensor_bytes = 0;
  for (const HostTensor& tensor : file.tensors()) {
    require(file.find_tensor(tensor.name) == &tensor, "a tensor is not found");
    const auto* data = static_cast<const uint8_t*>(tensor.data);
    for (size_t i = 0; i < tensor.bytes(); ++i)
      sum += data[i];
    tensor_bytes += tensor.bytes();
  }
  require(tensor_bytes <= file.file_bytes(), "the tensors are larger than the file");
  file.check_intact();
  return sum;
}

}  // namespace minfer::test
