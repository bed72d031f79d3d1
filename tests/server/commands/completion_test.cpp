// The shells' completion scripts and the manual pages, against --help, and in the shells themselves if they are installed.
#include <algorithm>
#include <regex>
#include <sstream>

#include <gmock/gmock.h>

#include "tests/support/server/command_line.h"

namespace minfer {
namespace {

using test::Outcome;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

constexpr const char* kCommands[] = {"",
                                     "run",
                                     "serve",
                                     "bench",
                                     "eval",
                                     "tokenize",
                                     "inspect",
                                     "models",
                                     "profile report",
                                     "profile requests",
                                     "profile diff",
                                     "profile trace",
                                     "profile explain",
                                     "profile view"};

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

/// The options that a command's --help lists.
std::vector<std::string> options_in_help(const test::CommandLine& line, const std::string& command) {
  const std::string help = line.minfer(command + " --help").out;
  std::vector<std::string> options;
  const std::regex entry("\n  (-[^ ]+)");
  for (std::sregex_iterator match(help.begin(), help.end(), entry), end; match != end; ++match) {
    std::istringstream names((*match)[1].str());
    for (std::string name; std::getline(names, name, ',');)
      options.push_back(name.substr(0, name.find('{')));  // --flag{false}
  }
  return options;
}

bool has_shell(const test::CommandLine& line, const std::string& shell) {
  return line.shell("command -v " + shell).exit_code == 0;
}

class CompletionTest : public testing::Test {
 protected:
  /// bash's completions for a command line whose last word is being typed ("" for a word that has not begun).
  std::vector<std::string> completed(const std::vector<std::string>& words) const {
    std::string quoted;
    for (const std::string& word : words)
      quoted += " '" + word + "'";
    line_.write(
        "complete.sh",
        "source <(minfer completion bash)\nCOMP_WORDS=(minfer" + quoted +
            ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_minfer\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n");
    const Outcome outcome = line_.shell("bash complete.sh");
    EXPECT_EQ(outcome.err, "");
    return words_of(outcome.out);
  }

  test::CommandLine line_;
};

TEST_F(CompletionTest, BashOffersWhatHelpLists) {
  for (const std::string command : kCommands) {
    std::vector<std::string> words = words_of(command);
    words.push_back("-");
    const std::vector<std::string> offered = completed(words);
    const std::vector<std::string> listed = options_in_help(line_, command);
    EXPECT_GE(listed.size(), 2u) << command;
    for (const std::string& option : listed)
      EXPECT_THAT(offered, Contains(option)) << command;
  }
}

TEST_F(CompletionTest, BashOffersCommandsValuesAndFiles) {
  line_.write("llama.gguf", "x");
  EXPECT_THAT(completed({""}), UnorderedElementsAre("run", "serve", "bench", "eval", "tokenize", "profile",
                                                    "tune", "inspect", "models"));
  EXPECT_THAT(completed({"pro"}), UnorderedElementsAre("profile"));
  EXPECT_THAT(completed({"profile", ""}),
              UnorderedElementsAre("report", "diff", "trace", "explain", "view", "requests"));
  EXPECT_THAT(completed({"run", "--device", ""}), UnorderedElementsAre("auto", "cpu", "cuda"));
  EXPECT_THAT(completed({"profile", "report", "-o", "j"}), UnorderedElementsAre("json"));
  EXPECT_THAT(completed({"run", "--temp"}), UnorderedElementsAre("--temp", "--temperature"));
  EXPECT_THAT(completed({"run", "ll"}), UnorderedElementsAre("llama.gguf"));
  EXPECT_THAT(completed({"run", "--model", "ll"}), UnorderedElementsAre("llama.gguf"));
  EXPECT_THAT(completed({"run", "--max-tokens", ""}), IsEmpty());
}

TEST_F(CompletionTest, TheOtherShellsScriptsHoldEveryOption) {
  const std::string zsh = line_.minfer("completion zsh").out, fish = line_.minfer("completion fish").out;
  for (const std::string command : kCommands) {
    for (const std::string& option : options_in_help(line_, command)) {
      EXPECT_THAT(zsh, HasSubstr("'" + option + ":"));
      const std::string name =
          option.starts_with("--") ? " -l " + option.substr(2) : " -s " + option.substr(1);
      EXPECT_THAT(fish, HasSubstr("__minfer_command_is '" + command + "'"));
      EXPECT_THAT(fish, HasSubstr(name));
    }
  }
  EXPECT_THAT(zsh, Not(HasSubstr("completion:")));
}

TEST_F(CompletionTest, ZshReadsItsScript) {
  if (!has_shell(line_, "zsh")) GTEST_SKIP() << "zsh is not installed";
  const Outcome outcome = line_.shell("minfer completion zsh > _minfer && zsh -n _minfer");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

TEST_F(CompletionTest, FishCompletesWithItsScript) {
  if (!has_shell(line_, "fish")) GTEST_SKIP() << "fish is not installed";
  // Each line has a word, a tab and the purpose of the option.
  const Outcome outcome = line_.shell(
      "minfer completion fish > m.fish && fish --no-config -c 'source m.fish; complete -C \"minfer run "
      "--device c\"' | cut -f 1");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(words_of(outcome.out), UnorderedElementsAre("cpu", "cuda")) << outcome.err;
}

TEST_F(CompletionTest, AShellThatIsNotKnownIsRefused) {
  EXPECT_EQ(line_.minfer("completion csh").exit_code, 2);
  EXPECT_THAT(line_.minfer("--help").out, Not(HasSubstr("completion")));
}

TEST_F(CompletionTest, ManualPagesHoldEveryOption) {
  const std::vector<std::string> pages = words_of(line_.minfer("man").out);
  for (const std::string command : kCommands) {
    std::string name = command.empty() ? "minfer" : "minfer-" + command;
    std::ranges::replace(name, ' ', '-');
    EXPECT_THAT(pages, Contains(name));
    const std::string page = line_.minfer("man " + name).out;
    EXPECT_THAT(page, HasSubstr(".SH NAME\n"));
    for (const std::string& option : options_in_help(line_, command))
      EXPECT_THAT(page, HasSubstr(std::regex_replace(option, std::regex("-"), "\\-"))) << name;
  }
}

TEST_F(CompletionTest, ManualPagesHoldOptionsThatExcludeEachOther) {
  EXPECT_THAT(line_.minfer("man minfer-run").out,
              AllOf(HasSubstr(".SH STRUCTURED OUTPUT\n"), HasSubstr("json\\-schema")));
}

TEST_F(CompletionTest, ManReadsEachPageWithoutAWarning) {
  if (!has_shell(line_, "groff")) GTEST_SKIP() << "groff is not installed";
  const Outcome outcome = line_.shell(
      "for page in $(minfer man); do minfer man $page | groff -man -Tutf8 -ww -z || echo $page; done");
  EXPECT_EQ(outcome.out + outcome.err, "");
}

TEST_F(CompletionTest, APageThatIsNotThereIsRefused) {
  const Outcome outcome = line_.minfer("man nothing");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("there is no page \"nothing\""));
}

}  // namespace
}  // namespace minfer
