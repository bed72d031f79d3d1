#include "tests/support/server/command_line.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include <sys/wait.h>

#include "tests/support/paths.h"

namespace minfer::test {

Outcome CommandLine::minfer(const std::string& arguments, const std::string& input) const {
  return shell("minfer " + arguments, input);
}

Outcome CommandLine::shell(const std::string& command, const std::string& input) const {
  write("stdin", input);
  const std::string programs = std::filesystem::path(minfer_binary()).parent_path().string();
  // Braces apply the redirections to the whole command.
  const std::string script = "cd '" + dir_.path().string() + "' && export MINFER_CEILINGS=skip PATH='" +
                             programs + "':\"$PATH\" && cat stdin | { " + command + "\n} > stdout 2> stderr";
  const int status = std::system(script.c_str());
  if (!WIFEXITED(status)) throw std::runtime_error(command + " was killed");
  return {WEXITSTATUS(status), read("stdout"), read("stderr")};
}

void CommandLine::write(const std::string& file, const std::string& content) const {
  std::ofstream(path(file), std::ios::binary) << content;
}

std::string CommandLine::read(const std::string& file) const {
  std::ifstream stream(path(file), std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace minfer::test
