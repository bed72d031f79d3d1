#include "profiling/json/request_lines.h"

#include <array>
#include <limits>

#include "profiling/json/json_text.h"

namespace minfer {
namespace {

double us(int64_t ns) {
  return static_cast<double>(ns) * 1e-3;
}

void append_time(JsonText& json, std::string_view name, int64_t ns) {
  if (ns > 0) json.field(name, ns);
}

int64_t time_of(const JsonField& line, std::string_view name) {
  const auto field = line.find(name);
  return field ? field->time_ns(1) : 0;
}

}  // namespace

void append_request_line(std::string& out, const EndedRequest& request) {
  JsonText json(out);
  json.open('{').field("schema", kRequestSchema).field("id", std::string_view(request.id));
  json.field("finish", std::string_view(request.finish)).field("arrival_ns", request.arrival_ns);
  append_time(json, "first_scheduled_ns", request.first_scheduled_ns);
  append_time(json, "first_token_ns", request.first_token_ns);
  json.field("end_ns", request.end_ns).field("queue_us", us(request.queue_ns()));
  json.field("prefill_us", us(request.prefill_ns())).field("decode_us", us(request.decode_ns()));
  json.field("prompt_tokens", request.prompt_tokens).field("cached_tokens", request.cached_tokens);
  json.field("recomputed_tokens", request.recomputed_tokens).field("output_tokens", request.output_tokens);
  json.field("preemptions", request.preemptions);
  if (request.priority != 0) json.field("priority", request.priority);
  if (request.steps.first >= 0) {
    json.key("steps").open('{').field("first", request.steps.first).field("last", request.steps.last);
    json.field("prefill", request.steps.prefill).field("decode", request.steps.decode).close('}');
  }
  if (request.has_grammar) {
    json.key("grammar").open('{').field("compile_us", us(request.grammar_compile_ns));
    json.field("mask_us", us(request.mask_ns)).field("forced_tokens", request.forced_tokens).close('}');
  }
  if (request.drafts > 0) {
    json.key("speculation").open('{').field("drafts", request.drafts);
    json.field("draft_tokens", request.draft_tokens)
        .field("accepted_tokens", request.accepted_tokens)
        .close('}');
  }
  json.field("stream_interval", request.stream_interval);
  if (request.client_wait_ns >= 0) json.field("client_wait_us", us(request.client_wait_ns));
  if (request.client_wait_after_ns >= 0) json.field("client_wait_after_us", us(request.client_wait_after_ns));
  json.key("prefix_hashes").open('[');
  for (const uint32_t hash : request.prefixes())
    json.value(int64_t{hash});
  json.close(']').close('}');
  out += '\n';
}

EndedRequest request_of(const JsonField& line) {
  EndedRequest request;
  request.id = line["id"].text();
  request.finish = line["finish"].text();
  request.arrival_ns = line["arrival_ns"].time_ns();
  request.first_scheduled_ns = time_of(line, "first_scheduled_ns");
  request.first_token_ns = time_of(line, "first_token_ns");
  request.end_ns = line["end_ns"].time_ns();
  request.prompt_tokens = line["prompt_tokens"].small();
  request.cached_tokens = line["cached_tokens"].small();
  request.recomputed_tokens = line["recomputed_tokens"].small();
  request.output_tokens = line["output_tokens"].small();
  request.preemptions = line["preemptions"].small();
  if (const auto priority = line.find("priority"))
    request.priority =
        priority->integer(std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
  if (const auto steps = line.find("steps")) {
    request.steps = {.first = (*steps)["first"].count(),
                     .last = (*steps)["last"].count(),
                     .prefill = (*steps)["prefill"].small(),
                     .decode = (*steps)["decode"].small()};
  }
  if (const auto grammar = line.find("grammar")) {
    request.has_grammar = true;
    request.grammar_compile_ns = (*grammar)["compile_us"].duration_ns();
    request.mask_ns = (*grammar)["mask_us"].duration_ns();
    request.forced_tokens = (*grammar)["forced_tokens"].small();
  }
  if (const auto speculation = line.find("speculation")) {
    request.drafts = (*speculation)["drafts"].count(1);
    request.draft_tokens = (*speculation)["draft_tokens"].count(1);
    request.accepted_tokens = (*speculation)["accepted_tokens"].count();
  }
  request.stream_interval = line["stream_interval"].integer(1, std::numeric_limits<int32_t>::max());
  if (const auto wait = line.find("client_wait_us")) request.client_wait_ns = wait->duration_ns();
  if (const auto wait = line.find("client_wait_after_us")) request.client_wait_after_ns = wait->duration_ns();
  const JsonField hashes = line["prefix_hashes"];
  if (hashes.size() > EndedRequest::kMostPrefixes) hashes.expected("nine hashes at most");
  for (size_t i = 0; i < hashes.size(); ++i)
    request.prefix_hashes[i] = hashes[i].integer(0, std::numeric_limits<uint32_t>::max());
  request.num_prefixes = static_cast<int32_t>(hashes.size());
  return request;
}

}  // namespace minfer
