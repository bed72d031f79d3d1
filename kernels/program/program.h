#pragma once

#include <variant>
#include <vector>

#include "kernels/op.h"
#include "kernels/op_args.h"

/// A model's step as a list of ops, emitted once and run for every batch. Memory, the op table of profiles and the ops that a device
/// computes together all follow from the list.
namespace minfer {

class Backend;
class Target;
struct ForwardBatch;

/// A value has rows for each token of a step, or for each row of the step's logits.
enum class RowsOf : uint8_t { token, logit_row };

/// A value that ops write and read: [rows, cols] in the memory that all values share (Arena).
struct ProgramValue {
  DType dtype;
  RowsOf rows_of;
  int64_t per_row;  ///< rows for each token or row of logits; of experts, the rows of those that are used
  int64_t cols;
};

using OpArgs = std::variant<EmbedArgs, NormArgs, LinearArgs, GateUpArgs, ActivateArgs, RopeKvWriteArgs,
                            LatentKvWriteArgs, AttentionArgs, HeadLinearArgs, MoeRouteArgs, MoeGateUpArgs,
                            MoeDownArgs, DeltaConvArgs, DeltaRuleArgs, HeadGateArgs, ShortConvArgs,
                            HiddenRowsArgs, MambaScanArgs, ChooseKeysArgs, MixStreamsArgs, SpreadColumnsArgs,
                            AllReduceArgs, GatherRowsArgs, GatherColumnsArgs>;

struct Op {
  OpId id;  ///< its row of the op table
  bool windows =
      false;  ///< the op sees the batch with the blocks of layers with windows (ForwardBatch::of_windows())
  OpArgs args;
};

struct Program {
  std::vector<OpInfo>
      table;  ///< all ops of a step in order, also those that no model emits: inputs, sampling, results
  std::vector<ProgramValue> values;
  std::vector<Op> body;  ///< from token ids to the last layer's output
  std::vector<Op> head;  ///< from there to logits; runs once for each slice of their rows
  Tensor logits;         ///< of one slice: [rows, vocab] f32
};

/// The largest step of a program: the memory of its values has this number of rows of each kind.
struct ProgramLimits {
  int64_t tokens;
  int64_t logit_rows;  ///< of one slice

  int64_t rows_of(const ProgramValue& value) const {
    return value.per_row * (value.rows_of == RowsOf::token ? tokens : logit_rows);
  }
};

/// The places of values in memory. Values that no op needs at the same time may share memory.
struct Arena {
  std::vector<size_t> offsets;  ///< one for each value
  size_t bytes = 0;
};

/// `variants`: programs with the same values and op ids; the memory of a value fits all of them. Values of the body that the head reads,
/// and all values that the head writes, are kept to the end of the step, since further slices come after the first.
Arena lay_out(std::span<const Program> variants, const ProgramLimits& limits);

/// Sets the address of all operands, for an arena that begins at `memory`.
void place_values(Program& program, const Arena& arena, std::byte* memory);

/// An op's description for profiles before it runs. Name, layer, scope and the model's own properties come from `info`; all else
/// follows from the arguments.
OpInfo describe(OpInfo info, const OpArgs& args);

/// Moves norms into products and makes values FP8 if the target takes that with `tokens` tokens (Target::takes_norm(), takes_fp8()).
/// Values and ids stay the same; ops whose work moves into others are removed. For a program of a single rank.
Program fuse(Program program, const Target& target, int64_t tokens);

/// Rows [first, first + count) of a batch's logits.
struct RowSlice {
  int32_t first = 0;
  int32_t count = 0;
};

/// Runs `ops`, the body or the head of a bound program, on the backend for a batch; the head for one slice of its logits. Sets the number
/// of rows and the batch's other properties in the arguments.
void run(const Program& program, std::vector<Op>& ops, Backend& backend, const ForwardBatch& batch,
         RowSlice slice);

}  // namespace minfer
