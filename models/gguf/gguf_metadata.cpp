#include "models/gguf/gguf_metadata.h"

#include <array>
#include <limits>
#include <type_traits>
#include <utility>

#include "kernels/base/error.h"
#include "models/gguf/printable.h"

namespace minfer {
namespace {

using Entry = GgufMetadata::Entry;

// Limits far above any real model (about 100 keys, vocabularies and merges of up to 500,000). With them what
// is allocated for the metadata stays below 40 MB for any file.
constexpr uint64_t kMaxEntries = uint64_t{1} << 17;
constexpr uint64_t kMaxKeyBytes = 65535;  // of the specification
constexpr uint64_t kMaxArrayElements = uint64_t{1} << 21;

constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;  // length, key, type, value
constexpr uint64_t kMinStringBytes = 8;

constexpr std::array<std::string_view, 13> kTypeNames{"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                      "bool", "string", "array", "u64", "i64", "f64"};
constexpr std::array<uint64_t, 13> kTypeBytes{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};  // 0: varies

bool is_known(uint32_t type) {
  return type < kTypeNames.size();
}

bool is_bool(GgufType type) {
  return type == GgufType::boolean;
}

bool is_string(GgufType type) {
  return type == GgufType::string;
}

bool is_float(GgufType type) {
  return type == GgufType::f32 || type == GgufType::f64;
}

bool is_integer_or_bool(GgufType type) {
  return !is_float(type) && type != GgufType::string && type != GgufType::array;
}

bool is_integer(GgufType type) {
  return is_integer_or_bool(type) && type != GgufType::boolean;
}

GgufType read_type(ByteCursor& cursor, std::string_view key) {
  const auto type = cursor.read<uint32_t>(key);
  if (!is_known(type)) {
    fail<FileError>("{}: key '{}': value type {}, expected 0 to {}", cursor.file(), printable(key), type,
                    kTypeNames.size() - 1);
  }
  return static_cast<GgufType>(type);
}

void check_bool(ByteCursor& cursor, std::string_view key) {
  const auto value = cursor.read<uint8_t>(key);
  if (value > 1)
    fail<FileError>("{}: key '{}': bool of value {}, expected 0 or 1", cursor.file(), printable(key), value);
}

/// Passes over `count` values at the cursor and checks them.
void skip_values(ByteCursor& cursor, GgufType type, uint64_t count, std::string_view key) {
  if (type == GgufType::string) {
    cursor.expect_room(count, kMinStringBytes, key);
    for (uint64_t i = 0; i < count; ++i)
      cursor.read_string(key);
  } else if (type == GgufType::boolean) {
    cursor.expect_room(count, 1, key);
    for (uint64_t i = 0; i < count; ++i)
      check_bool(cursor, key);
  } else {
    cursor.skip(count, kTypeBytes[static_cast<size_t>(type)], key);
  }
}

std::string_view read_key(ByteCursor& cursor) {
  const uint64_t offset = cursor.offset();
  const std::string_view key = cursor.read_string("a metadata key");
  if (key.empty() || key.size() > kMaxKeyBytes) {
    fail<FileError>("{}: metadata key at offset {} has {} bytes, expected 1 to {}", cursor.file(), offset,
                    key.size(), kMaxKeyBytes);
  }
  return key;
}

/// Type and count of the value at the cursor, which ends before the value itself or an array's first element.
Entry read_entry_head(ByteCursor& cursor) {
  const std::string_view key = read_key(cursor);
  const GgufType type = read_type(cursor, key);
  if (type != GgufType::array) return {key, type, type, 1};
  const GgufType element_type = read_type(cursor, key);
  if (element_type == GgufType::array) {
    fail<FileError>("{}: key '{}': array of arrays, expected an array of plain values", cursor.file(),
                    printable(key));
  }
  const auto count = cursor.read<uint64_t>(key);
  if (count > kMaxArrayElements) {
    fail<FileError>("{}: key '{}': array of {} elements, expected at most {}", cursor.file(), printable(key),
                    count, kMaxArrayElements);
  }
  return {key, type, element_type, count};
}

/// The type has been checked.
int64_t read_int(ByteCursor& cursor, const Entry& entry) {
  switch (entry.element_type) {
    case GgufType::u8:
    case GgufType::boolean:
      return cursor.read<uint8_t>(entry.key);
    case GgufType::i8:
      return cursor.read<int8_t>(entry.key);
    case GgufType::u16:
      return cursor.read<uint16_t>(entry.key);
    case GgufType::i16:
      return cursor.read<int16_t>(entry.key);
    case GgufType::u32:
      return cursor.read<uint32_t>(entry.key);
    case GgufType::i32:
      return cursor.read<int32_t>(entry.key);
    case GgufType::i64:
      return cursor.read<int64_t>(entry.key);
    default:
      break;
  }
  const auto value = cursor.read<uint64_t>(entry.key);
  if (!std::in_range<int64_t>(value)) {
    fail<FileError>("{}: key '{}': value {}, expected at most {}", cursor.file(), printable(entry.key), value,
                    std::numeric_limits<int64_t>::max());
  }
  return static_cast<int64_t>(value);
}

double read_float(ByteCursor& cursor, const Entry& entry) {
  if (entry.element_type == GgufType::f32) return static_cast<double>(cursor.read<float>(entry.key));
  return cursor.read<double>(entry.key);
}

std::string_view read_string(ByteCursor& cursor, const Entry& entry) {
  return cursor.read_string(entry.key);
}

std::string render(ByteCursor& cursor, const Entry& entry) {
  switch (entry.element_type) {
    case GgufType::string:
      return printable(cursor.read_string(entry.key));
    case GgufType::boolean:
      return cursor.read<uint8_t>(entry.key) != 0 ? "true" : "false";
    case GgufType::f32:
      return fmt::format("{}", cursor.read<float>(entry.key));
    case GgufType::f64:
      return fmt::format("{}", cursor.read<double>(entry.key));
    case GgufType::u64:
      return fmt::format("{}", cursor.read<uint64_t>(entry.key));
    default:
      return fmt::format("{}", read_int(cursor, entry));
  }
}

}  // namespace

std::string_view name(GgufType type) {
  const auto number = static_cast<uint32_t>(type);
  return is_known(number) ? kTypeNames[number] : "unknown";
}

GgufMetadata GgufMetadata::parse(ByteCursor& cursor, uint64_t count) {
  const std::string_view file = cursor.file();
  if (count > kMaxEntries)
    fail<FileError>("{}: {} metadata keys, expected at most {}", file, count, kMaxEntries);
  cursor.expect_room(count, kMinEntryBytes, "the metadata");
  std::vector<Entry> entries;
  std::vector<uint64_t> offsets;
  entries.reserve(count);
  offsets.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    const Entry entry = read_entry_head(cursor);
    offsets.push_back(cursor.offset());
    entries.push_back(entry);
    skip_values(cursor, entry.element_type, entry.count, entry.key);
  }
  return {cursor, std::move(entries), std::move(offsets)};
}

GgufMetadata::GgufMetadata(const ByteCursor& cursor, std::vector<Entry> entries,
                           std::vector<uint64_t> offsets)
    : entries_(std::move(entries)),
      offsets_(std::move(offsets)),
      bytes_(cursor.bytes()),
      file_(cursor.file()),
      index_(static_cast<uint32_t>(entries_.size()), [this](uint32_t i) { return entries_[i].key; }) {
  const auto twice = index_.duplicate([this](uint32_t i) { return entries_[i].key; });
  if (twice) fail<FileError>("{}: key '{}' occurs twice, expected once", file_, printable(*twice));
}

const Entry* GgufMetadata::find(std::string_view key) const {
  const auto found = index_.find(key, [this](uint32_t i) { return entries_[i].key; });
  return found ? &entries_[*found] : nullptr;
}

ByteCursor GgufMetadata::value_at(const Entry& entry) const {
  return {bytes_, file_, offsets_[static_cast<size_t>(&entry - entries_.data())]};
}

void GgufMetadata::fail_type(const Entry& entry, std::string_view expected) const {
  const bool is_array = entry.type == GgufType::array;
  fail<FileError>("{}: key '{}': type {}{}, expected {}", file_, printable(entry.key),
                  is_array ? "array of " : "", minfer::name(entry.element_type), expected);
}

void GgufMetadata::fail_missing(std::string_view key) const {
  fail<FileError>("{}: key '{}' is missing", file_, printable(key));
}

void GgufMetadata::expect_type(std::string_view key, GgufType type) const {
  const Entry* entry = find(key);
  if (entry != nullptr && entry->type != type) fail_type(*entry, minfer::name(type));
}

template <class Read>
auto GgufMetadata::get(std::string_view key, bool (*is_expected)(GgufType), std::string_view expected,
                       const Read& read) const {
  const Entry* entry = find(key);
  std::optional<std::invoke_result_t<Read, ByteCursor&, const Entry&>> value;
  if (entry == nullptr) return value;
  if (!is_expected(entry->type)) fail_type(*entry, expected);
  ByteCursor cursor = value_at(*entry);
  value = read(cursor, *entry);
  return value;
}

template <class T, class Read>
std::vector<T> GgufMetadata::get_array(std::string_view key, bool (*is_expected)(GgufType),
                                       std::string_view expected, const Read& read) const {
  const Entry* entry = find(key);
  if (entry == nullptr) return {};
  expect_type(key, GgufType::array);
  if (!is_expected(entry->element_type)) fail_type(*entry, expected);
  std::vector<T> values(entry->count);
  ByteCursor cursor = value_at(*entry);
  for (T& value : values)
    value = static_cast<T>(read(cursor, *entry));
  return values;
}

std::optional<int64_t> GgufMetadata::get_int(std::string_view key) const {
  return get(key, is_integer, "an integer", read_int);
}

std::optional<double> GgufMetadata::get_float(std::string_view key) const {
  return get(key, is_float, "f32 or f64", read_float);
}

std::optional<bool> GgufMetadata::get_bool(std::string_view key) const {
  return get(key, is_bool, "bool", [](auto& cursor, auto& entry) { return read_int(cursor, entry) != 0; });
}

std::optional<std::string_view> GgufMetadata::get_string(std::string_view key) const {
  return get(key, is_string, "string", read_string);
}

std::vector<std::string_view> GgufMetadata::get_strings(std::string_view key) const {
  return get_array<std::string_view>(key, is_string, "array of string", read_string);
}

std::vector<int64_t> GgufMetadata::get_ints(std::string_view key) const {
  return get_array<int64_t>(key, is_integer_or_bool, "array of integers or bool", read_int);
}

std::vector<float> GgufMetadata::get_floats(std::string_view key) const {
  return get_array<float>(key, is_float, "array of f32 or f64", read_float);
}

std::string GgufMetadata::describe(std::string_view key) const {
  constexpr uint64_t kShownElements = 4;
  const Entry* entry = find(key);
  if (entry == nullptr) fail_missing(key);
  ByteCursor cursor = value_at(*entry);
  if (entry->type != GgufType::array) return render(cursor, *entry);
  std::string text = fmt::format("[{} x {}]", minfer::name(entry->element_type), entry->count);
  for (uint64_t i = 0; i < std::min(entry->count, kShownElements); ++i) {
    text += (i == 0 ? " " : ", ") + render(cursor, *entry);
  }
  if (entry->count > kShownElements) text += ", ...";
  return text;
}

const std::byte* ByteCursor::take(uint64_t size, std::string_view what) {
  if (size > remaining()) {
    fail<FileError>("{}: truncated: {} needs {} bytes at offset {}, but {} are left", file_, printable(what),
                    size, offset_, remaining());
  }
  const std::byte* at = bytes_.data() + offset_;
  offset_ += size;
  return at;
}

std::string_view ByteCursor::read_string(std::string_view what) {
  const auto length = read<uint64_t>(what);
  const auto* text = reinterpret_cast<const char*>(take(length, what));
  return {text, static_cast<size_t>(length)};
}

void ByteCursor::skip(uint64_t count, uint64_t size, std::string_view what) {
  expect_room(count, size, what);
  take(count * size, what);  // fits: no more than what is left
}

void ByteCursor::expect_room(uint64_t count, uint64_t min_bytes, std::string_view what) const {
  if (count > remaining() / min_bytes) {
    fail<FileError>(
        "{}: truncated: {} has {} items of at least {} bytes each at offset {}, but {} bytes are left", file_,
        printable(what), count, min_bytes, offset_, remaining());
  }
}

}  // namespace minfer
