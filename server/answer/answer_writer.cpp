#include "server/answer/answer_writer.h"

#include "server/anthropic/messages.h"
#include "server/llama_server/infill.h"
#include "server/openai/openai_response.h"
#include "server/responses/responses_answer.h"

namespace minfer {

std::unique_ptr<AnswerStream> make_answer_stream(const CompletionRequest& request,
                                                 const ResponseIdentity& identity,
                                                 const ApiContext& context) {
  if (request.endpoint == Endpoint::messages) return make_messages_stream(request, identity, context);
  if (request.endpoint == Endpoint::responses) return make_responses_stream(request, identity, context);
  if (request.endpoint == Endpoint::infill) return make_infill_stream(request, context);
  return std::make_unique<StreamWriter>(request, identity, context);
}

std::unique_ptr<WholeAnswer> make_whole_answer(const CompletionRequest& request,
                                               const ResponseIdentity& identity, const ApiContext& context) {
  if (request.endpoint == Endpoint::messages) return make_messages_answer(request, identity, context);
  if (request.endpoint == Endpoint::responses) return make_responses_answer(request, identity, context);
  if (request.endpoint == Endpoint::infill) return make_infill_answer(request, context);
  return std::make_unique<ResponseBuilder>(request, identity, context);
}

}  // namespace minfer
