#include <algorithm>
#include <cstdint>
#include <vector>

#include "profiling/json/line_members.h"

namespace minfer {

template <class Json>
void members(Json& json, Is<EndedRequest> auto& request) {
  json.told("schema", kRequestSchema).member("id", request.id).member("finish", request.finish);
  json.member("arrival_ns", request.arrival_ns, kTime);
  json.optional("first_scheduled_ns", request.first_scheduled_ns, kTimeFrom<1>);
  json.optional("first_token_ns", request.first_token_ns, kTimeFrom<1>);
  json.member("end_ns", request.end_ns, kTime).told("queue_us", us_of(request.queue_ns()));
  json.told("prefill_us", us_of(request.prefill_ns())).told("decode_us", us_of(request.decode_ns()));
  json.member("prompt_tokens", request.prompt_tokens).member("cached_tokens", request.cached_tokens);
  json.member("recomputed_tokens", request.recomputed_tokens).member("output_tokens", request.output_tokens);
  json.member("preemptions", request.preemptions);
  json.optional("priority", request.priority, kInteger<INT32_MIN, INT32_MAX>);
  if (json.has("steps", request.steps.first >= 0)) {
    json.object("steps", [&steps = request.steps](auto& inner) {
      inner.member("first", steps.first).member("last", steps.last);
      inner.member("prefill", steps.prefill).member("decode", steps.decode);
    });
  }
  const bool has_grammar = json.has("grammar", request.has_grammar);
  if (has_grammar) {
    json.object("grammar", [&](auto& inner) {
      inner.member("compile_us", request.grammar_compile_ns, kDuration);
      inner.member("mask_us", request.mask_ns, kDuration).member("forced_tokens", request.forced_tokens);
    });
  }
  if constexpr (Json::kReads) request.has_grammar = has_grammar;
  if (json.has("speculation", request.drafts > 0)) {
    json.object("speculation", [&](auto& inner) {
      inner.member("drafts", request.drafts, kCountFrom<1>);
      inner.member("draft_tokens", request.draft_tokens, kCountFrom<1>);
      inner.member("accepted_tokens", request.accepted_tokens);
    });
  }
  json.member("stream_interval", request.stream_interval, kInteger<1, INT32_MAX>);
  json.optional("client_wait_us", request.client_wait_ns, kDuration, -1);
  json.optional("client_wait_after_us", request.client_wait_after_ns, kDuration, -1);
  const auto prefixes = request.prefixes();
  std::vector<uint32_t> hashes(prefixes.begin(), prefixes.end());
  json.plain_list("prefix_hashes", hashes, kInteger<0u, UINT32_MAX>);
  if constexpr (Json::kReads) {
    if (hashes.size() > EndedRequest::kMostPrefixes)
      json.field()["prefix_hashes"].expected("nine hashes at most");
    std::ranges::copy(hashes, request.prefix_hashes.begin());
    request.num_prefixes = static_cast<int32_t>(hashes.size());
  }
}

template struct JsonOf<EndedRequest>;

}  // namespace minfer
