#!/usr/bin/env python3
"""Writes the demo model with BF16 weights, which --quantization fp8 takes, and stories that it has not seen, for `minfer eval`.

Needs more packages: pip install gguf numpy.
"""

import argparse
import random
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

import demo_stories

DEMO = Path(__file__).resolve().parents[2] / "models/demo/minfer-demo.gguf"
SEED = 20261124
STORIES = 150


def write_widened(source: Path, target: Path) -> None:
    """All matrices as BF16, all else as it is."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, arch=reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        is_array = field.types[0] == gguf.GGUFValueType.ARRAY
        writer.add_key_value(field.name, field.contents(), field.types[0], field.types[-1] if is_array else None)
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if tensor.tensor_type == gguf.GGMLQuantizationType.F32:
            writer.add_tensor(tensor.name, values)
        else:
            bf16 = gguf.GGMLQuantizationType.BF16
            writer.add_tensor(tensor.name, quantize(values, bf16), raw_dtype=bf16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="GGUF file to write")
    parser.add_argument("stories", type=Path, help="text file to write")
    args = parser.parse_args()
    write_widened(DEMO, args.model)
    rng = random.Random(SEED)
    args.stories.write_text("\n\n".join(demo_stories.story(rng) for _ in range(STORIES)))


if __name__ == "__main__":
    main()
