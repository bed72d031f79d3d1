#pragma once

#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "engine/engine.h"
#include "profiling/json/profile_writer.h"

namespace minfer {

/// What of the step records goes to a file. They are kept in memory in any case.
struct ProfileArgs {
  static constexpr const char* kGroup = "Profile";

  std::string out;     ///< empty: no file, unless a range is given
  std::string range;   ///< "A:B", both included
  std::string detail;  ///< "op" or "layer"; empty: op, with a range layer

  void add_to(CLI::App& command);
  bool wanted() const { return !out.empty() || !range.empty(); }
};

/// Writes an engine's step records to a file while it lives, and names the file on the terminal when it ends.
/// Outlived by the engine.
class ProfileSession {
 public:
  /// Measures the machine's ceilings first if they are not cached, since the records are held against them.
  ProfileSession(const ProfileArgs& args, Engine& engine);
  ~ProfileSession();
  ProfileSession(const ProfileSession&) = delete;
  ProfileSession& operator=(const ProfileSession&) = delete;

 private:
  Engine& engine_;
  std::string path_;
  std::unique_ptr<ProfileWriter> writer_;
};

/// What a profile of this engine says in its first line.
ProfileHeader make_profile_header(Engine& engine, ProfileDetail detail);

}  // namespace minfer
