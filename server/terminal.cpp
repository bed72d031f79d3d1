#include "server/terminal.h"

#include <unistd.h>

namespace minfer {

bool is_terminal(std::FILE* stream) {
  return isatty(fileno(stream)) == 1;
}

}  // namespace minfer
