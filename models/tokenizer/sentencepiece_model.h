#pragma once

#include <span>
#include <string>
#include <string_view>

namespace minfer {

/// A piece of a SentencePiece model. Types are numbered as in sentencepiece_model.proto.
struct SentencePiece {
  enum class Type { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  std::string_view text;
  float score;
  Type type;
};

/// A serialised sentencepiece.ModelProto (google/sentencepiece, src/sentencepiece_model.proto) of type BPE
/// with byte fallback and a normaliser that changes nothing. Written by hand because no .proto is packaged
/// with the library.
std::string serialize_sentencepiece_model(std::span<const SentencePiece> pieces);

}  // namespace minfer
