#include "tests/support/models/gguf_builder.h"

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <utility>

namespace minfer::test {

void ByteWriter::put_bytes(std::span<const std::byte> bytes) {
  const size_t end = bytes_.size();
  bytes_.resize(end + bytes.size());
  std::ranges::copy(bytes, bytes_.begin() + static_cast<std::ptrdiff_t>(end));
}

void ByteWriter::put_string(std::string_view text) {
  put(uint64_t{text.size()});
  put_bytes(std::as_bytes(std::span(text)));
}

GgufBuilder& GgufBuilder::add(std::string_view key, std::string_view value) {
  ByteWriter writer;
  writer.put_string(value);
  return raw_key(key, static_cast<uint32_t>(GgufType::string), writer.bytes());
}

GgufBuilder& GgufBuilder::add(std::string_view key, const std::vector<std::string>& values) {
  ByteWriter writer;
  writer.put(static_cast<uint32_t>(GgufType::string));
  writer.put(uint64_t{values.size()});
  for (const std::string& value : values)
    writer.put_string(value);
  return raw_key(key, static_cast<uint32_t>(GgufType::array), writer.bytes());
}

GgufBuilder& GgufBuilder::tensor(std::string_view name, DType dtype, std::vector<uint64_t> dims,
                                 std::vector<std::byte> data) {
  if (data.empty()) {
    size_t bytes = row_bytes(dtype, static_cast<int64_t>(dims.at(0)));
    for (size_t i = 1; i < dims.size(); ++i)
      bytes *= dims[i];
    for (size_t i = 0; i < bytes; ++i)
      data.push_back(static_cast<std::byte>(i));
  }
  return raw_tensor({std::string(name), std::move(dims), traits(dtype).ggml_type, {}, {}, std::move(data)});
}

GgufBuilder& GgufBuilder::raw_key(std::string_view key, uint32_t type, std::span<const std::byte> value) {
  keys_.put_string(key);
  keys_.put(type);
  keys_.put_bytes(value);
  ++num_keys_;
  return *this;
}

GgufBuilder& GgufBuilder::raw_tensor(TensorRecord record) {
  tensors_.push_back(std::move(record));
  return *this;
}

std::vector<std::byte> GgufBuilder::build() const {
  ByteWriter file;
  file.put(with_magic);
  file.put(with_version);
  file.put(with_num_tensors.value_or(tensors_.size()));
  file.put(with_num_keys.value_or(num_keys_));
  file.put_bytes(keys_.bytes());
  ByteWriter data;
  for (const TensorRecord& tensor : tensors_) {
    if (!tensor.data.empty()) data.pad(with_alignment);
    file.put_string(tensor.name);
    file.put(tensor.num_dims.value_or(static_cast<uint32_t>(tensor.dims.size())));
    for (const uint64_t dim : tensor.dims)
      file.put(dim);
    file.put(tensor.ggml_type);
    file.put(tensor.offset.value_or(data.bytes().size()));
    data.put_bytes(tensor.data);
  }
  if (!data.bytes().empty()) file.pad(with_alignment);
  file.put_bytes(data.bytes());
  return file.bytes();
}

void GgufBuilder::write(const std::filesystem::path& path) const {
  write_bytes(path, build());
}

GgufBuilder small_gguf() {
  GgufBuilder builder;
  builder.add("general.architecture", "llama")
      .add("general.alignment", uint32_t{32})
      .add("a.u8", uint8_t{8})
      .add("a.i8", int8_t{-8})
      .add("a.u16", uint16_t{16})
      .add("a.i16", int16_t{-16})
      .add("a.u32", uint32_t{32})
      .add("a.i32", int32_t{-32})
      .add("a.u64", uint64_t{64})
      .add("a.i64", int64_t{-64})
      .add("a.f32", 0.5F)
      .add("a.f64", 0.25)
      .add("a.bool", true)
      .add("a.strings", std::vector<std::string>{"<unk>", "", "</s>"})
      .add("a.floats", std::vector<float>{1.5F, -2.5F})
      .add("a.ints", std::vector<int32_t>{1, -2, 3});
  builder.tensor("token_embd.weight", DType::q8_0, {32, 3})
      .tensor("blk.0.ffn_up.weight", DType::f32, {4, 2, 2})
      .tensor("output_norm.weight", DType::bf16, {5});
  return builder;
}

void write_bytes(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

}  // namespace minfer::test
