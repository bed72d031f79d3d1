#include "server/api/request/dialect.h"
#include "server/dialects/anthropic/messages.h"
#include "server/dialects/llama_server/infill.h"
#include "server/dialects/ollama/ollama.h"
#include "server/dialects/openai/openai.h"
#include "server/dialects/responses/responses_request.h"

namespace minfer {

std::span<const Dialect* const> dialects() {
  static constexpr const Dialect* kDialects[] = {&kCompletionsDialect,   &kChatDialect,   &kMessagesDialect,
                                                 &kResponsesDialect,     &kInfillDialect, &kOllamaChatDialect,
                                                 &kOllamaGenerateDialect};
  return kDialects;
}

}  // namespace minfer
