#pragma once

#include "server/routes/router.h"

namespace minfer {

/// GET / and the files that the live page consists of (server/page/ and Chart.js, all inside the binary). They need no key: what they show
/// does. Clients may keep them, but ask each time whether they are still current.
void add_page_routes(Api& api);

}  // namespace minfer
