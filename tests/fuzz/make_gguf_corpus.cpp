// Writes the initial inputs of the GGUF fuzz target: well-formed files that reach every part of
// the reader.
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/models/gguf_builder.h"

int main(int argc, char** argv) {
  using minfer::DType;
  using minfer::test::GgufBuilder;
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_gguf_corpus DIRECTORY\n");
    return 2;
  }
  const std::filesystem::path dir = argv[1];

  GgufBuilder().write(dir / "empty");
  minfer::test::small_gguf().write(dir / "every_value_type");

  GgufBuilder version_2 = minfer::test::small_gguf();
  version_2.with_version = 2;
  version_2.write(dir / "version_2");

  GgufBuilder types;
  for (const auto& type : minfer::all_dtypes())
    types.tensor(type.name, type.dtype, {type.block_elements});
  types.write(dir / "every_tensor_type");

  GgufBuilder aligned;
  aligned.with_alignment = 8;
  aligned.add("general.alignment", uint32_t{8})
      .tensor("a", DType::f32, {3})
      .tensor("b", DType::f16, {1, 2, 3});
  aligned.write(dir / "alignment_8");

  GgufBuilder vocabulary;
  vocabulary.add("tokenizer.ggml.model", "llama")
      .add("tokenizer.ggml.tokens",
           std::vector<std::string>{"<unk>", "<s>", "</s>", "<0x00>", "\xe2\x96\x81the"})
      .add("tokenizer.ggml.scores", std::vector<float>{0, 0, 0, 0, -1})
      .add("tokenizer.ggml.token_type", std::vector<int32_t>{2, 3, 3, 6, 1})
      .write(dir / "vocabulary");

  GgufBuilder split;
  split.add("split.no", uint16_t{0}).add("split.count", uint16_t{2}).add("split.tensors.count", int32_t{1});
  split.write(dir / "split");
  return 0;
}
