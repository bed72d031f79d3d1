#pragma once

#include <string>

#include "server/commands/args/engine_args.h"
#include "server/commands/args/load_args.h"
#include "server/serving/profile/profile_session.h"

namespace minfer {

/// `minfer bench`'s load tests: they run the load, print the result in a format of `-o` and save it if asked
/// to. Both throw Error if no request was answered as it should be, and end the program after a Ctrl-C.

/// Tests the engine in this process.
void run_engine_load_test(const LoadArgs& args, const EngineArgs& engine, const ProfileArgs& profile,
                          const std::string& format);

/// Tests a server.
void run_server_load_test(const LoadArgs& args, const std::string& format);

}  // namespace minfer
