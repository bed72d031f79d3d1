#include "tests/support/profiling/sample_profile.h"

namespace minfer::test {
namespace {

OpInfo linear(const char* op, int32_t layer, OpKind kind, TokenScope scope, int64_t in, int64_t out) {
  OpInfo info;
  info.name = op;
  info.layer = layer;
  info.kind = kind;
  info.scope = scope;
  info.in_features = in;
  info.out_features = out;
  info.weight_bytes = in * out * 2;
  return info;
}

OpInfo attention(const char* op, int32_t layer, TokenScope scope) {
  OpInfo info;
  info.name = op;
  info.layer = layer;
  info.kind = OpKind::attention;
  info.scope = scope;
  info.heads = 8;
  info.kv_heads = 2;
  info.head_size = 32;
  return info;
}

bool runs(const OpInfo& info, const BatchShape& shape) {
  if (info.scope == TokenScope::decode) return shape.decode_tokens > 0;
  return info.scope != TokenScope::prefill || shape.prefill_tokens > 0;
}

}  // namespace

std::vector<OpInfo> sample_ops() {
  std::vector<OpInfo> ops{linear("embed", -1, OpKind::embed, TokenScope::all, 256, 256)};
  ops.back().weight_bytes = 512;
  for (int32_t layer = 0; layer < 2; ++layer) {
    ops.push_back(linear("qkv", layer, OpKind::linear, TokenScope::all, 256, 384));
    ops.push_back(attention("attention_decode", layer, TokenScope::decode));
    ops.push_back(attention("attention_prefill", layer, TokenScope::prefill));
    ops.push_back(linear("gate_up_swiglu", layer, OpKind::gate_up_swiglu, TokenScope::all, 256, 512));
  }
  ops.push_back(linear("lm_head", -1, OpKind::linear, TokenScope::logits, 256, 4096));
  ops.push_back(linear("sample", -1, OpKind::sample, TokenScope::logits, 4096, 1));
  return ops;
}

ProfileHeader sample_header(ProfileDetail detail) {
  ProfileHeader header;
  header.version = "0.1.0";
  header.model = "sample \"two layers\"\n";
  header.backend = "cpu";
  header.device = "Sample Processor";
  header.threads = 2;
  header.ceilings = {200.0, 4000.0};
  header.options = {{"max_num_seqs", "256"}, {"kv_cache_dtype", "f32"}};
  header.clock_ns = 81'234'567'890'123;
  header.unix_ns = 1'700'000'000'000'000'000;
  header.detail = detail;
  header.ops = sample_ops();
  return header;
}

StepRecord sample_record(int64_t step, int32_t decode_tokens, int32_t prefill_tokens) {
  StepRecord record;
  record.step = step;
  record.start_ns = 1'000'000'000 + step * 1'000'000;
  record.batch.shape.decode_tokens = decode_tokens;
  record.batch.shape.decode_sequences = decode_tokens;
  record.batch.shape.decode_logit_rows = decode_tokens;
  record.batch.shape.decode_context = 100 * decode_tokens;
  record.batch.shape.longest_context = decode_tokens > 0 ? 100 : 0;
  record.batch.shape.decode_attended = 100 * decode_tokens;
  record.batch.shape.prefill_tokens = prefill_tokens;
  record.batch.shape.prefill_sequences = prefill_tokens > 0 ? 1 : 0;
  record.batch.shape.prefill_logit_rows = prefill_tokens > 0 ? 1 : 0;
  record.batch.shape.prefill_context = prefill_tokens;
  record.batch.shape.prefill_attended = int64_t{prefill_tokens} * (prefill_tokens + 1) / 2;
  record.batch.kv_blocks_used = 12;
  record.batch.kv_blocks_total = 64;
  int64_t clock = record.start_ns + 5'000;
  record.host_ns[static_cast<size_t>(HostSpan::schedule)] = 5'000;
  const std::vector<OpInfo> ops = sample_ops();
  for (size_t op = 0; op < ops.size(); ++op) {
    if (!runs(ops[op], record.batch.shape)) continue;
    record.stamps.ops.push_back({.op = static_cast<OpId>(op), .begin_ns = clock});
    clock += static_cast<int64_t>(op + 1) * 1'000;
  }
  record.stamps.end_ns = clock;
  record.host_ns[static_cast<size_t>(HostSpan::commit)] = 3'000;
  record.end_ns = clock + 4'000;
  record.requests.push_back("request-0");
  return record;
}

std::vector<KernelLaunch> sample_launches() {
  std::vector<KernelLaunch> launches(2);
  launches[0].kernel = "rms_norm_kernel<float, __nv_bfloat16, 8>";
  launches[0].path = "rms_norm";
  launches[0].grid = {4, 1, 1};
  launches[0].block = {256, 1, 1};
  launches[0].registers = 40;
  launches[0].blocks_per_sm = 6;
  launches[0].limiter = OccupancyLimiter::registers;
  launches[0].occupancy = 0.75;
  launches[0].waves = 4.0 / (132 * 6);
  launches[1] = launches[0];
  launches[1].kernel = "a library's \"kernel\"";
  launches[1].path = "cublasLt";
  launches[1].cluster = {2, 1, 1};
  launches[1].dynamic_shared_bytes = 200 << 10;
  launches[1].limiter = OccupancyLimiter::shared_memory;
  return launches;
}

StepRecord sample_device_record(int64_t step, bool with_ends) {
  StepRecord record = sample_record(step, 4, 0);
  record.on_device = true;
  int64_t clock = record.start_ns;
  for (StepStamps::Stamp& stamp : record.stamps.ops) {
    clock += 20'000;  // launched late: each 10 us after the end of the one before
    stamp.launched_ns = clock - 2'000;
    stamp.begin_ns = clock;
    stamp.end_ns = with_ends ? clock + 10'000 : 0;
    stamp.num_launches = 2;
    record.stamps.launches.insert(record.stamps.launches.end(), {0, 1});
  }
  record.stamps.end_ns = record.end_ns = clock + 10'000;
  return record;
}

std::vector<StepSummary> sample_steps(int64_t count, ProfileDetail detail) {
  const ProfileHeader header = sample_header(detail);
  StepSummariser summariser(header.ops, header.ceilings, detail);
  std::vector<StepSummary> steps;
  for (int64_t step = 0; step < count; ++step) {
    steps.push_back(summariser.summarise(sample_record(step, step % 3 == 2 ? 0 : 4, step % 3 == 0 ? 0 : 32)));
  }
  return steps;
}

}  // namespace minfer::test
