#pragma once

#include <variant>
#include <vector>

#include "kernels/op.h"
#include "kernels/op_args.h"

/// A model's step as a list of ops, which is emitted once and run for every batch. Memory, the op table of profiles and what a device
/// computes together all follow from the list.
namespace minfer {

/// A value has rows for each token of a step, or for each row of its logits.
enum class RowsOf : uint8_t { token, logit_row };

/// Something that ops write and read: [rows, cols] in the memory that all values share (Arena).
struct ProgramValue {
  DType dtype;
  RowsOf rows_of;
  int64_t per_row;  ///< rows for each token or row of logits: of experts, those that are used
  int64_t cols;
};

using OpArgs = std::variant<EmbedArgs, NormArgs, LinearArgs, GateUpArgs, ActivateArgs, RopeKvWriteArgs,
                            LatentKvWriteArgs, AttentionArgs, HeadLinearArgs, MoeRouteArgs, MoeGateUpArgs,
                            MoeDownArgs, DeltaConvArgs, DeltaRuleArgs, HeadGateArgs, ShortConvArgs,
                            AllReduceArgs, GatherRowsArgs, GatherColumnsArgs>;

struct Op {
  OpId id;  ///< its row of the op table
  bool windows =
      false;  ///< it sees the batch with the blocks of layers with windows (ForwardBatch::of_windows())
  OpArgs args;
};

struct Program {
  std::vector<OpInfo>
      table;  ///< all ops of a step in order, those included that no model emits: inputs, sampling, results
  std::vector<ProgramValue> values;
  std::vector<Op> body;  ///< from token ids to the last layer's output
  std::vector<Op> head;  ///< from there to logits: once for each slice of their rows
  Tensor logits;         ///< of a slice: [rows, vocab] f32
};

/// The largest step of a program: so many rows of each kind has the memory of its values.
struct ProgramLimits {
  int64_t tokens;
  int64_t logit_rows;  ///< of a slice

  int64_t rows_of(const ProgramValue& value) const {
    return value.per_row * (value.rows_of == RowsOf::token ? tokens : logit_rows);
  }
};

/// Where values lie in memory: those that no op needs at the same time may share it.
struct Arena {
  std::vector<size_t> offsets;  ///< of each value
  size_t bytes = 0;
};

/// `variants`: programs of the same values, whose ops have the same ids; a value is kept for all of them. What the head reads of the body's,
/// and all that it gives, is kept to the end of the step, since further slices come behind the first.
Arena lay_out(std::span<const Program> variants, const ProgramLimits& limits);

/// Says where all operands are, of an arena that begins at `memory`.
void place_values(Program& program, const Arena& arena, std::byte* memory);

/// What a profile knows of an op before it runs: name, layer, scope and what is the model's are `info`'s, all else follows from the
/// arguments.
OpInfo describe(OpInfo info, const OpArgs& args);

}  // namespace minfer
