#include "models/tokenizer/sentencepiece_model.h"

#include <bit>
#include <cstdint>

namespace minfer {
namespace {

// Protocol buffer wire format: https://protobuf.dev/programming-guides/encoding/
enum WireType : uint32_t { kVarint = 0, kLengthDelimited = 2, kFixed32 = 5 };

void write_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void write_tag(std::string& out, uint32_t field, WireType type) {
  write_varint(out, (field << 3) | type);
}

void write_integer(std::string& out, uint32_t field, uint64_t value) {
  write_tag(out, field, kVarint);
  write_varint(out, value);
}

void write_float(std::string& out, uint32_t field, float value) {
  write_tag(out, field, kFixed32);
  const auto bits = std::bit_cast<uint32_t>(value);
  for (int shift = 0; shift < 32; shift += 8)
    out += static_cast<char>(bits >> shift);
}

void write_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  write_tag(out, field, kLengthDelimited);
  write_varint(out, bytes.size());
  out += bytes;
}

std::string serialize(const SentencePiece& piece) {
  std::string message;
  write_bytes(message, 1, piece.text);
  write_float(message, 2, piece.score);
  write_integer(message, 3, static_cast<uint64_t>(piece.type));
  return message;
}

}  // namespace

std::string serialize_sentencepiece_model(std::span<const SentencePiece> pieces) {
  std::string trainer_spec;
  write_integer(trainer_spec, 3, 2);   // model_type = BPE
  write_integer(trainer_spec, 35, 1);  // byte_fallback

  std::string normalizer_spec;
  write_bytes(normalizer_spec, 1, "identity");  // name
  write_integer(normalizer_spec, 3, 0);         // add_dummy_prefix
  write_integer(normalizer_spec, 4, 0);         // remove_extra_whitespaces
  write_integer(normalizer_spec, 5, 0);         // escape_whitespaces

  std::string model;
  for (const SentencePiece& piece : pieces)
    write_bytes(model, 1, serialize(piece));
  write_bytes(model, 2, trainer_spec);
  write_bytes(model, 3, normalizer_spec);
  return model;
}

}  // namespace minfer
